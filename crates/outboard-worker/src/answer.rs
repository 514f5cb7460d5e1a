//! Commands on their way in, answers on their way out.

use std::marker::PhantomData;

use outboard_abi::CUresult;
use outboard_wire::Encode;
use outboard_wire::messages::Call;

use super::io::Replier;

/// What came of a posted command.
pub(crate) type Outcome = Result<(), CUresult>;

/// A command, not decoded yet.
pub(crate) struct Incoming<'a> {
    pub(crate) op: u16,
    pub(crate) seq: u64,
    pub(crate) payload: &'a [u8],
    pub(crate) replier: &'a Replier,
}

/// The duty to answer one call. It may move to the thread that waits; dropped without an answer, it
/// answers with an error, so that no client waits without end.
pub(crate) struct Answer<M> {
    seq: u64,
    replier: Option<Replier>,
    call: PhantomData<fn(M)>,
}

impl Incoming<'_> {
    pub(crate) fn answer<M: Call>(&self) -> Answer<M> {
        Answer { seq: self.seq, replier: Some(self.replier.clone()), call: PhantomData }
    }
}

impl<M: Call> Answer<M> {
    /// Answers with what the call returns.
    pub(crate) fn ok(mut self, reply: &M::Reply<'_>) {
        self.send(CUresult::CUDA_SUCCESS, |writer| reply.encode(writer));
    }

    /// Answers with an error. It carries no reply.
    pub(crate) fn error(mut self, error: CUresult) {
        self.send(error, |_| {});
    }

    /// Answers with the outcome of a driver call.
    pub(crate) fn result(self, outcome: Result<M::Reply<'_>, CUresult>) {
        match outcome {
            Ok(reply) => self.ok(&reply),
            Err(error) => self.error(error),
        }
    }
}

impl<M> Answer<M> {
    fn send(&mut self, status: CUresult, encode: impl FnOnce(&mut outboard_wire::Writer)) {
        if status != CUresult::CUDA_SUCCESS && self.replier.is_some() {
            outboard_control::meter::page().failed(status);
        }
        if let Some(replier) = self.replier.take()
            && replier.reply(self.seq, status.0, encode).is_err()
        {
            // Only a reply that fits no frame fails, and nothing of it was sent.
            let _ = replier.reply(self.seq, CUresult::CUDA_ERROR_UNKNOWN.0, |_| {});
        }
    }
}

impl<M> Drop for Answer<M> {
    fn drop(&mut self) {
        self.send(CUresult::CUDA_ERROR_UNKNOWN, |_| {});
    }
}
