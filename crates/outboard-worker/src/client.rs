//! What the worker tells its client besides answers.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::ContextId;

use super::io::{Registry, Replier};
use super::output::{Output, Printed};
use super::staging::Copied;
use super::unreported::UnreportedCopies;

/// Tells the client, from any thread, what it must know before the answer to a wait: what kernels
/// have printed, which copies the device has done.
#[derive(Clone)]
pub(crate) struct Reporter {
    replier: Replier,
    output: Arc<Output>,
    copies: UnreportedCopies,
}

impl Reporter {
    pub(crate) fn report(&self, printed: Printed) {
        self.output.forward(&self.replier, printed);
        self.report_copies();
    }

    /// Of that, only the copies: for questions that do not wait.
    pub(crate) fn report_copies(&self) {
        self.copies.report(&self.replier);
    }

    pub(crate) fn replier(&self) -> &Replier {
        &self.replier
    }
}

/// The client of a session.
pub(crate) struct Client {
    output: Arc<Output>,
    copies: UnreportedCopies,
    /// From the first command on.
    reporter: Option<Reporter>,
}

impl Client {
    pub(crate) fn new(output: Output) -> Client {
        Client { output: Arc::new(output), copies: UnreportedCopies::default(), reporter: None }
    }

    /// A command has come, which is answered through this.
    #[inline]
    pub(crate) fn set_replier(&mut self, replier: &Replier) {
        if self.reporter.is_none() {
            let (output, copies) = (Arc::clone(&self.output), self.copies.clone());
            self.reporter = Some(Reporter { replier: replier.clone(), output, copies });
        }
    }

    /// Once there was a command.
    pub(crate) fn reporter(&self) -> Option<&Reporter> {
        self.reporter.as_ref()
    }

    /// Once there was a command.
    pub(crate) fn replier(&self) -> Option<&Replier> {
        self.reporter().map(Reporter::replier)
    }

    /// The supervisor, as what is shared or lent needs it.
    pub(crate) fn registry(&self) -> Option<&Registry> {
        self.replier().map(Replier::registry)
    }

    /// What the client must know before the answer to a wait.
    pub(crate) fn report(&self, printed: Printed) {
        if let Some(reporter) = self.reporter() {
            reporter.report(printed);
        }
    }

    /// Of that, only the copies: for questions that do not wait.
    pub(crate) fn report_copies(&self) {
        if let Some(reporter) = self.reporter() {
            reporter.report_copies();
        }
    }

    /// A copy to the host is under way.
    pub(crate) fn expect(&self, number: u64, copy: &Arc<dyn Copied>) {
        self.copies.add(number, copy);
    }

    /// Tells the client that a posted command has failed, in a context.
    pub(crate) fn report_failed(&self, ctx: ContextId, op: u16, error: CUresult) {
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
