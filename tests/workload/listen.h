/* Peers for the tests of sockets. */
#ifndef CKB_PROBE_LISTEN_H
#define CKB_PROBE_LISTEN_H

/* Accepts connections at a port from now on, and answers each request. Returns 0, or why it cannot, as errno has it. */
int listen_at(unsigned port);

#endif
