//! What the worker tells its client besides answers.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::ContextId;

use super::io::{Registry, Replier};
use super::output::{Output, Printed};
use super::staging::Copied;
use super::untold::Untold;

/// Tells the client, from any thread, what it must know before the answer to a wait: what kernels
/// have printed, which copies the device has done.
#[derive(Clone)]
pub(crate) struct Teller {
    replier: Replier,
    output: Arc<Output>,
    copies: Untold,
}

impl Teller {
    pub(crate) fn tell(&self, printed: Printed) {
        self.output.forward(&self.replier, printed);
        self.tell_copies();
    }

    /// Of that, only the copies: for questions that do not wait.
    pub(crate) fn tell_copies(&self) {
        self.copies.tell(&self.replier);
    }

    pub(crate) fn replier(&self) -> &Replier {
        &self.replier
    }
}

/// The client of a session.
pub(crate) struct Client {
    output: Arc<Output>,
    copies: Untold,
    /// From the first command on.
    teller: Option<Teller>,
}

impl Client {
    pub(crate) fn new(output: Output) -> Client {
        Client { output: Arc::new(output), copies: Untold::default(), teller: None }
    }

    /// A command has come, which is answered through this.
    #[inline]
    pub(crate) fn meet(&mut self, replier: &Replier) {
        if self.teller.is_none() {
            let (output, copies) = (Arc::clone(&self.output), self.copies.clone());
            self.teller = Some(Teller { replier: replier.clone(), output, copies });
        }
    }

    /// Once there was a command.
    pub(crate) fn teller(&self) -> Option<&Teller> {
        self.teller.as_ref()
    }

    /// Once there was a command.
    pub(crate) fn replier(&self) -> Option<&Replier> {
        self.teller().map(Teller::replier)
    }

    /// The supervisor, as what is shared or lent needs it.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.replier().map(Replier::registry)
    }

    /// What the client must know before the answer to a wait.
    pub(crate) fn tell(&self, printed: Printed) {
        if let Some(teller) = self.teller() {
            teller.tell(printed);
        }
    }

    /// Of that, only the copies: for questions that do not wait.
    pub(crate) fn tell_copies(&self) {
        if let Some(teller) = self.teller() {
            teller.tell_copies();
        }
    }

    /// A copy to the host is under way.
    pub(crate) fn expect(&self, number: u64, copy: &Arc<dyn Copied>) {
        self.copies.add(number, copy);
    }

    /// Tells the client that a posted command has failed, in a context.
    pub(crate) fn report(&self, ctx: ContextId, op: u16, error: CUresult) {
        tracing::debug!(
            message = outboard_wire::messages::name(op),
            error = error.0,
            "a posted command failed"
        );
        if let Some(replier) = self.replier() {
            replier.failed(ctx, error);
        }
    }
}
