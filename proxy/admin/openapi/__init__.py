"""The OpenAPI page of the admin address, made from its routes and from the types of its handlers."""
