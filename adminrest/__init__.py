"""The client of admin REST addresses, which every application shares."""
