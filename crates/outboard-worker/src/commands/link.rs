//! The linker.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_wire::ObjectId;
use outboard_wire::messages::*;

use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::LinkCommands;
use crate::links::Link;
use crate::worker::Worker;

/// A status for a reply that is there whatever happened.
fn status(outcome: Result<(), CUresult>) -> u32 {
    outcome.map_or_else(|error| error.0, |()| 0)
}

impl Worker {
    fn start_link(&mut self, name: ObjectId) -> Result<Arc<Link>, CUresult> {
        let context = self.enter()?;
        self.code.check_new_link(name)?;
        let link = Arc::new(Link::start(self.table, context)?);
        self.code.add_link(self.contexts.here(), name, link.clone());
        Ok(link)
    }
}

impl LinkCommands for Worker {
    fn link_create(&mut self, m: LinkCreate, answer: Answer<LinkCreate>) {
        match self.start_link(m.link) {
            // If it fails, the client destroys nothing: the next link that is made sees to it.
            Ok(link) => link.run(move |state| {
                answer.result(state.create(&m.options).map(|()| LinkCreateReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn link_add(&mut self, m: LinkAdd<'_>, answer: Answer<LinkAdd<'static>>) {
        let data = self.code.take_whole();
        match self.code.link(m.link).and_then(|link| Ok((link, data?))) {
            Ok((link, data)) => {
                let (kind, name, options) = (m.kind, m.name.to_owned(), m.options);
                link.run(move |state| {
                    let status = status(state.add(kind, &data, &name, &options));
                    answer.ok(&LinkAddReply { status, log: state.log() });
                });
            }
            Err(error) => answer.error(error),
        }
    }

    fn link_complete(&mut self, m: LinkComplete, answer: Answer<LinkComplete>) {
        match self.code.link(m.link) {
            Ok(link) => link.run(move |state| {
                let linked = state.complete();
                let bytes = linked.unwrap_or(0);
                answer.ok(&LinkCompleteReply {
                    status: status(linked.map(|_| ())),
                    bytes,
                    log: state.log(),
                });
            }),
            Err(error) => answer.error(error),
        }
    }

    fn link_output(&mut self, m: LinkOutput, answer: Answer<LinkOutput>) {
        match self.code.link(m.link) {
            Ok(link) => link.run(move |state| {
                answer.result(state.output(m.offset).map(|data| LinkOutputReply { data }))
            }),
            Err(error) => answer.error(error),
        }
    }

    fn link_destroy(&mut self, m: LinkDestroy) -> Outcome {
        self.code.remove_link(m.link)
    }
}
