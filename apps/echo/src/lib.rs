//! An echo service.
