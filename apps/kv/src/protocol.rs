//! The memcached text protocol: one module for the line, for the classic commands, for the meta
//! commands and for the administrative ones.

pub(crate) mod admin;
pub(crate) mod base64;
pub(crate) mod command;
pub(crate) mod context;
pub(crate) mod line;
pub(crate) mod meta;
pub(crate) mod meta_flags;
pub(crate) mod meta_reply;
pub(crate) mod meta_store;
pub(crate) mod partial;
pub(crate) mod reading;
pub(crate) mod reply;
pub(crate) mod step;
pub(crate) mod text;
pub(crate) mod value;
