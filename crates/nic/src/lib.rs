//! NIC drivers and the middleware around them.
