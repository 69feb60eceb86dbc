//! The elastic thread: a state machine of six steps.
