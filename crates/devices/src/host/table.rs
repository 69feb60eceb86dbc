//! stub
use super::runs::Results;
pub fn terminal(_: &Results) -> String {
    String::new()
}
pub fn markdown(_: &Results) -> String {
    String::new()
}
