//! How control crosses between dataplane and application: event and call arrays.
