"""The console: a web page for one broker, run as a process of its own beside it or anywhere else.

    browser ── HTML, one WebSocket ──►  console process                                              broker
                                         pages ── a client per sign-in, with the user's token ──►  Arrow Flight
                                         poller ── one request every few seconds for everybody ──►  GET /metrics
                                           └► history: a bounded ring of samples ──► charts of all open pages

Data flows one way. The poller (`monitor`) is the only thing that asks by itself: it parses `/metrics` into a `Sample`,
appends it to the history and notifies the open pages, which redraw. However many browsers are open, the broker sees
one request per interval. Everything else is a call that a person caused, made by the client of their session, so the
broker enforces the rights of their token; the console only hides what would be refused. A page that follows a topic
waits for new end offsets and then reads the newest messages: it never pulls a whole topic.

    settings, server    where the console listens, and its process
    guard               which requests it answers: hosts, origins, headers
    sign_in, sessions   who is signed in; `attempts` limits wrong tokens
    monitor             metrics as samples, their history, what needs attention: pure but for the poller
    messages            reading, searching and showing messages, on whole Arrow batches
    reset               what moving a group to other offsets would do
    view                text, charts, tables and the frame that all pages share
    pages               a module for each page

What fails: if the broker does not answer, pages stay open, say so and continue when it is back. Sessions live in memory
only: after a restart of the console people sign in again. Everything from a message is shown as text.

Runs on one event loop; blocking work (Flight, Arrow, parsing) is in threads.
"""
