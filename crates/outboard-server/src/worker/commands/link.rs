//! The linker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_abi::CUresult;
use outboard_wire::messages::*;

use super::Worker;
use crate::generated::dispatch::LinkCommands;
use crate::worker::answer::{Answer, Outcome};
use crate::worker::links::Link;

/// What a panic in another thread left is as good as what an error leaves.
fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A status for a reply that is there whatever happened.
fn status(outcome: Result<(), CUresult>) -> u32 {
    outcome.map_or_else(|error| error.0, |()| 0)
}

impl LinkCommands for Worker {
    fn link_create(&mut self, m: LinkCreate, answer: Answer<LinkCreate>) {
        let mut create = || {
            self.enter()?;
            self.objects.links.check_new(m.link)?;
            let link = Link::new(self.table, &m.options)?;
            self.objects.links.insert(m.link, self.ctx, Arc::new(Mutex::new(link)));
            Ok(LinkCreateReply {})
        };
        answer.result(create());
    }

    fn link_add(&mut self, m: LinkAdd<'_>, answer: Answer<LinkAdd<'static>>) {
        let data = self.upload.take_all();
        let found = self.enter().and_then(|context| Ok((context, self.objects.links.get(m.link)?, data?)));
        let (context, link, data) = match found {
            Ok(found) => found,
            Err(error) => return answer.error(error),
        };
        let (kind, name, options) = (m.kind, m.name.to_owned(), m.options);
        // PTX is compiled here, which takes its time.
        self.on_helper(
            context,
            answer,
            move |_| {
                let mut link = lock(&link);
                let status = status(link.add(kind, &data, &name, &options));
                Ok(LinkAddReply { status, log: link.log() })
            },
            |answer, outcome| answer.result(outcome),
        );
    }

    fn link_complete(&mut self, m: LinkComplete, answer: Answer<LinkComplete>) {
        let found = self.enter().and_then(|context| Ok((context, self.objects.links.get(m.link)?)));
        let (context, link) = match found {
            Ok(found) => found,
            Err(error) => return answer.error(error),
        };
        self.on_helper(
            context,
            answer,
            move |_| {
                let mut link = lock(&link);
                let linked = link.complete();
                let bytes = linked.unwrap_or(0);
                Ok(LinkCompleteReply { status: status(linked.map(|_| ())), bytes, log: link.log() })
            },
            |answer, outcome| answer.result(outcome),
        );
    }

    fn link_output(&mut self, m: LinkOutput, answer: Answer<LinkOutput>) {
        match self.objects.links.get(m.link) {
            Ok(link) => {
                let link = lock(&link);
                answer.result(link.output(m.offset).map(|data| LinkOutputReply { data }));
            }
            Err(error) => answer.error(error),
        }
    }

    fn link_destroy(&mut self, m: LinkDestroy) -> Outcome {
        self.enter()?;
        self.objects.links.remove(m.link).map(drop)
    }
}
