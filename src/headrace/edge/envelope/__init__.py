"""The envelope around every call of a protocol: what connections, requests and answers may hold, together and each."""
