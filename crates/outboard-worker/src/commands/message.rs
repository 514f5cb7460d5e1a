//! Messages of MPI to and from other sessions.

use outboard_abi::CUresult;
use outboard_wire::DevicePtr;
use outboard_wire::combine::Combine;
use outboard_wire::messages::*;

use super::{Worker, current};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::MessageCommands;
use crate::messages::{Driver, Message};

impl MessageCommands for Worker {
    fn message_offer(&mut self, m: MessageOffer, answer: Answer<MessageOffer>) {
        let (driver, message) = match self.message((m.link, m.number), m.address, m.bytes) {
            Ok(Some(found)) => found,
            Ok(None) => return answer.ok(&MessageOfferReply { taken: false }),
            Err(error) => return answer.error(error),
        };
        let Some(room) = self.messages.room(&message) else {
            return answer.ok(&MessageOfferReply { taken: false });
        };
        self.helpers.run_in_turn(move || {
            let taken = message.offer(driver, room);
            answer.result(taken.map(|taken| MessageOfferReply { taken }));
        });
    }

    fn message_take(&mut self, m: MessageTake, answer: Answer<MessageTake>) {
        let combine = Combine::of(m.combine);
        let is_whole = combine.is_none_or(|it| m.bytes.is_multiple_of(it.element.bytes() as u64));
        if m.combine != 0 && combine.is_none() || !is_whole {
            return answer.error(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (driver, message) = match self.message((m.link, m.number), m.address, m.bytes) {
            Ok(Some(found)) => found,
            Ok(None) => return answer.ok(&MessageTakeReply { came: false }),
            Err(error) => return answer.error(error),
        };
        let store = self.messages.arriving();
        self.helpers.run_in_turn(move || {
            let came = message.take(driver, &store, combine);
            answer.result(came.map(|came| MessageTakeReply { came }));
        });
    }

    fn message_refuse(&mut self, m: MessageRefuse) -> Outcome {
        if let Some(link) = self.link(m.link) {
            link.done(m.number, false);
        }
        Ok(())
    }
}

impl Worker {
    /// A message whose memory is the session's, and the context of the command; `None` if its link
    /// is lost.
    fn message(
        &mut self,
        (link, number): (u32, u64),
        address: DevicePtr,
        bytes: u64,
    ) -> Result<Option<(Driver, Message)>, CUresult> {
        let context = self.enter()?;
        self.memory.allocations.check(address, bytes)?;
        let Some(link) = self.link(link) else { return Ok(None) };
        let message = Message::new(link, number, (address, bytes));
        let driver = Driver { table: self.table, context: current(&context) };
        Ok(message.map(|message| (driver, message)))
    }
}
