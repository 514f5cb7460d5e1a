//! What attempts to connect were answered with.

use std::time::{Duration, Instant};

use outboard_wire::handshake::RefusalCode;

use super::error::ConnectError;

/// What attempts to connect were answered with.
#[derive(Default)]
pub(super) struct Refusals {
    /// Since when nothing but refusals in the clear has come.
    in_the_clear: Option<Instant>,
}

/// For so long a refusal in the clear is not believed where connections are encrypted: who is on
/// the way for a moment does not end a session by it.
const NOT_BELIEVED: Duration = Duration::from_secs(5);

impl Refusals {
    /// Whether another attempt would end no better than the one that has failed so.
    pub(super) fn is_final(&mut self, error: &ConnectError) -> bool {
        let ConnectError::RefusedInTheClear { refusal, .. } = error else {
            self.in_the_clear = None;
            return is_final(error);
        };
        let since = *self.in_the_clear.get_or_insert_with(Instant::now);
        since.elapsed() >= NOT_BELIEVED && !may_pass(refusal.code)
    }
}

/// Whether a refusal says nothing of later attempts.
fn may_pass(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::Busy | RefusalCode::Stopping)
}

fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Refused { refusal, .. } => !may_pass(refusal.code),
        other => matches!(other, ConnectError::Handshake { .. } | ConnectError::Address(_)),
    }
}
