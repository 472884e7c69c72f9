"""A fleet: Sluices that hold one limit together. What carries its messages.

`service` is this proxy's part: it joins the core `fleet` to a `link`, of which there are two, `topic_link` and
`peer_link`. `policy_topic` carries changes of policies, and takes no part in sharing. `pulsar_connection` serves both
kinds of topics.
"""
