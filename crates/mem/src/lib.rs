//! Mbufs and per-core pools over one huge-page region.
