"""What needs attention: what a server measures over time goes in, a list of findings comes out. Pure.

    readings    one look at a server: groups, topics, disk, pipelines, tokens, certificates; and what could not be read
    history     what must be remembered of earlier looks: the lag of each group, the disk; bounded for each group
    rules       every rule: its severity, what to do, the command; and the judgment over a reading and its history
    findings    the answer: findings in the order of severity, and one of three states: fine, attention, unknown

A server judges by itself (`broker.health`), since only it knows all of this over time. `headrace status`, the console,
`/metrics` and the alert rules show its list, and judge nothing themselves.
"""
