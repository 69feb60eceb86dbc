//! What the six services have in common.

use crate::refused::Refused;

/// Turns one request into one reply, in memory that the caller owns; never panics, allocates nothing, whatever the
/// request holds.
pub trait Service {
    /// What reports call it.
    fn name(&self) -> &'static str;

    /// Writes the reply to `request` to the start of `reply` and returns its length in bytes. After a refusal `reply`
    /// holds nothing of meaning, and the service is as it was before the request, its counters aside.
    ///
    /// # Errors
    /// [`Refused`], with the reason.
    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused>;

    /// The most bytes that the reply to a request of `request_len` bytes can have: room that always suffices.
    fn reply_len_max(&self, request_len: usize) -> usize;
}

/// The first `needed` bytes of a reply's room.
///
/// # Errors
/// [`Refused::ReplyRoom`] where there are fewer.
#[inline]
pub(crate) fn room(reply: &mut [u8], needed: usize) -> Result<&mut [u8], Refused> {
    let room = reply.len();
    reply.get_mut(..needed).ok_or(Refused::ReplyRoom { needed, room })
}
