//! Packet formats: checked views, meaningful structs, checksums, Toeplitz hash.
