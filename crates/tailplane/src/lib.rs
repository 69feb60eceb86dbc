//! The API a service is written against, and the threads that run it.
