"""A fleet: Sluices that hold one limit together. This package carries its messages.

`service` is this proxy's part, and joins the core `fleet` to a `link`; `member_limits`, `leadership` and
`coordinator_clock` belong to `service`. `spaced_call` paces reports and grants. `topic_link` is the link, and
`configured_link` makes it. `policy_topic` carries changes of policies, and takes no part in sharing.
`pulsar_connection` serves both kinds of topics.
"""
