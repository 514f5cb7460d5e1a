//! Why sessions have ended, for clients that come back to them.

use std::collections::VecDeque;

use outboard_transport::tls;
use outboard_wire::handshake::auth::Proof;
use outboard_wire::handshake::{Refusal, RefusalCode};
use subtle::ConstantTimeEq;

/// So many are remembered.
const MOST_REMEMBERED: usize = 1024;

/// The sessions that have ended last.
#[derive(Default)]
pub(super) struct Over(VecDeque<Ended>);

struct Ended {
    session: u64,
    key: u128,
    /// Such as "ended, as ...".
    why: String,
}

impl Over {
    /// A session has ended.
    pub(super) fn note(&mut self, session: u64, key: u128, why: String) {
        if self.0.len() >= MOST_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(Ended { session, key, why });
    }

    /// The answer to a client with this key, for a session that does not exist.
    pub(super) fn refusal(&self, session: u64, key: u128) -> Refusal {
        self.tell(session, |ended| ended.key.to_le_bytes().ct_eq(&key.to_le_bytes()).into())
    }

    /// The same for a client that proves to have a key.
    pub(super) fn refusal_to(&self, session: u64, proof: &Proof, what: &[u8]) -> Refusal {
        self.tell(session, |ended| tls::tag(ended.key, what).ct_eq(&proof.tag).into())
    }

    fn tell(&self, session: u64, is_its_client: impl Fn(&Ended) -> bool) -> Refusal {
        match self.0.iter().find(|ended| ended.session == session && is_its_client(ended)) {
            Some(ended) => Refusal {
                code: RefusalCode::SessionOver,
                sentence: format!("the session was {}", ended.why),
            },
            None => no_session(),
        }
    }
}

/// One answer to a number that is not there and to a wrong key, so that it does not tell which
/// sessions exist.
pub(super) fn no_session() -> Refusal {
    let sentence = "the server has no such session, or it has another key".to_owned();
    Refusal { code: RefusalCode::NoSession, sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_key_is_told_why_and_nobody_else() {
        let mut over = Over::default();
        over.note(7, 70, "ended".to_owned());
        assert_eq!(over.refusal(7, 70).code, RefusalCode::SessionOver);
        assert!(over.refusal(7, 70).sentence.ends_with("was ended"));
        let proof = |key| Proof { nonce: 1, tag: tls::tag(key, b"what") };
        assert_eq!(over.refusal_to(7, &proof(70), b"what").code, RefusalCode::SessionOver);
        let others = [
            over.refusal(7, 71),
            over.refusal(8, 70),
            over.refusal_to(7, &proof(71), b"what"),
            over.refusal_to(7, &proof(70), b"else"),
        ];
        assert!(others.iter().all(|refusal| *refusal == no_session()));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut over = Over::default();
        (0..2 * MOST_REMEMBERED as u64).for_each(|session| over.note(session, 1, String::new()));
        assert_eq!(over.0.len(), MOST_REMEMBERED);
        assert_eq!(over.refusal(0, 1).code, RefusalCode::NoSession);
    }
}
