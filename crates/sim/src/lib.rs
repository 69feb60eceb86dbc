//! Seeded simulation of hosts that run the real stack and dataplane.
