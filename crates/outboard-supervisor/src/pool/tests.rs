//! Leases for tests, and who is admitted by them.

use jiff::SignedDuration;
use outboard_pool::lease::{SigningKey, sign};
use outboard_pool::words::{Granted, Use};
use outboard_transport::client_key::ClientKey;

use super::*;

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub(super) fn granted(server: &str, device: u8, memory_bytes: u64, usage: Use) -> Granted {
    let device = outboard_wire::platform::uuid_text(&[device; 16]).parse().unwrap();
    Granted { server: server.parse().unwrap(), device, memory_bytes, usage }
}

/// Lease 7, good for an hour.
pub(super) fn lease(devices: Vec<Granted>) -> Lease {
    Lease {
        number: LeaseNumber(7),
        owner: "alice".parse().unwrap(),
        group: "physics".parse().unwrap(),
        devices,
        priority: 0,
        not_before: now(),
        expires: now() + SignedDuration::from_hours(1),
        renewable_until: now() + SignedDuration::from_hours(9),
        client_key: "0".repeat(64).parse().unwrap(),
        may_share: MayShare::SameKey,
    }
}

/// A broker, a server called `gpu1`, and a client with a lease there.
struct Case {
    broker: SigningKey,
    pool: Pool,
    key: ClientKey,
    lease: Lease,
}

fn new_key() -> ClientKey {
    let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    ClientKey::from_pem(made.serialize_pem().as_bytes()).unwrap()
}

impl Case {
    fn new() -> Case {
        let (broker, key) = (SigningKey::generate().unwrap(), new_key());
        let keys = vec![broker.public().clone()];
        let pool = Pool::new("gpu1".parse().unwrap(), keys, now());
        let mut lease = lease(vec![granted("gpu1", 1, 1 << 30, Use::Exclusive)]);
        lease.client_key = thumbprint(&key.public()).parse().unwrap();
        Case { broker, pool, key, lease }
    }

    /// What the client says, signed for this certificate.
    fn shown(&self, nonce: u128, certificate: Option<Fingerprint>) -> ShownLease {
        let unsigned = ShownLease {
            token: sign(&self.lease, &self.broker).unwrap(),
            server: "gpu1".to_owned(),
            key: self.key.public(),
            time: u64::try_from(now().as_millisecond()).unwrap(),
            nonce,
            signature: [0; 64],
        };
        sign_with(&self.key, unsigned, certificate)
    }

    fn refusal(&self, shown: &ShownLease, certificate: Option<Fingerprint>) -> Refusal {
        self.pool.admit(shown, certificate, now()).expect_err("it is no good")
    }
}

fn sign_with(key: &ClientKey, shown: ShownLease, certificate: Option<Fingerprint>) -> ShownLease {
    let statement = shown.statement(certificate.map(|print| print.0).as_ref());
    ShownLease { signature: key.sign(&statement), ..shown }
}

const CERTIFICATE: Option<Fingerprint> = Some(Fingerprint([1; 32]));

#[test]
fn who_has_the_key_is_admitted_each_time_it_proves_it() {
    let case = Case::new();
    let first = case.pool.admit(&case.shown(1, CERTIFICATE), CERTIFICATE, now()).unwrap();
    let second = case.pool.admit(&case.shown(2, None), None, now()).unwrap();
    assert_eq!(first.lease(), second.lease());
    let replayed = case.refusal(&case.shown(1, CERTIFICATE), CERTIFICATE);
    assert!(replayed.sentence.contains("shown before"), "{replayed}");
    assert_eq!(replayed.error(), Code::LeaseNotAccepted);
}

#[test]
fn a_stolen_lease_is_of_no_use() {
    let case = Case::new();
    let shown = case.shown(1, CERTIFICATE);
    let thief = new_key();
    // With a key of its own, with the owner's public key, and with somebody else's proof.
    let own = sign_with(&thief, ShownLease { key: thief.public(), ..shown.clone() }, CERTIFICATE);
    assert!(case.refusal(&own, CERTIFICATE).sentence.contains("bound to another key"));
    let pretended = sign_with(&thief, shown.clone(), CERTIFICATE);
    assert!(case.refusal(&pretended, CERTIFICATE).sentence.contains("was not made for this"));
    // A hostile server shows the proof that it was shown, as it is or over a connection of its own.
    for other in [None, Some(Fingerprint([2; 32]))] {
        assert!(case.refusal(&shown, other).sentence.contains("was not made for this"));
    }
    let elsewhere =
        sign_with(&case.key, ShownLease { server: "gpu2".into(), ..shown.clone() }, CERTIFICATE);
    assert!(case.refusal(&elsewhere, CERTIFICATE).sentence.contains("for gpu2"));
    for change in [
        ShownLease { time: shown.time + 1, ..shown.clone() },
        ShownLease { nonce: 9, ..shown.clone() },
    ] {
        assert!(case.refusal(&change, CERTIFICATE).sentence.contains("was not made for this"));
    }
    assert!(case.pool.admit(&shown, CERTIFICATE, now()).is_ok(), "none of it harms the owner");
}

#[test]
fn clocks_may_be_apart_and_other_leases_are_refused() {
    let case = Case::new();
    let ahead = |seconds: u64| {
        let shown = case.shown(u128::from(seconds), None);
        sign_with(&case.key, ShownLease { time: shown.time + seconds * 1000, ..shown }, None)
    };
    assert!(case.pool.admit(&ahead(30), None, now()).is_ok());
    assert!(case.refusal(&ahead(31), None).sentence.contains("30 seconds apart"));
    let never = sign_with(&case.key, ShownLease { time: u64::MAX, ..ahead(1) }, None);
    assert!(case.refusal(&never, None).sentence.contains("30 seconds apart"));

    let foreign = SigningKey::generate().unwrap();
    let forged = ShownLease { token: sign(&case.lease, &foreign).unwrap(), ..ahead(2) };
    let forged = case.refusal(&sign_with(&case.key, forged, None), None);
    assert!(forged.sentence.contains("does not know"), "{forged}");
    let late = now() + SignedDuration::from_secs(3631);
    let expired = case.pool.admit(&ahead(3), None, late).unwrap_err();
    assert_eq!((expired.error(), expired.code), (Code::LeaseOver, RefusalCode::NotAuthenticated));
    for token in ["", "v4.public.", "v4.public.AAAA.AAAA", &"x".repeat(60 << 10)] {
        let wrong = ShownLease { token: token.to_owned(), ..ahead(4) };
        assert_eq!(case.refusal(&wrong, None).error(), Code::LeaseNotAccepted, "{token}");
    }
}

#[test]
fn a_process_that_starts_late_has_what_the_lease_says_by_now() {
    let case = Case::new();
    let late = now() + SignedDuration::from_secs(3700);
    let shown = |nonce| {
        let shown = case.shown(nonce, None);
        sign_with(&case.key, ShownLease { time: shown.time + 3_700_000, ..shown }, None)
    };
    let first = case.pool.admit(&case.shown(1, None), None, now()).unwrap();
    assert_eq!(case.pool.admit(&shown(2), None, late).unwrap_err().error(), Code::LeaseOver);
    let longer = Lease { expires: late, ..case.lease.clone() };
    assert_eq!(case.pool.renew(&sign(&longer, &case.broker).unwrap(), now()), Ok(true));
    let second = case.pool.admit(&shown(3), None, late).expect("it is renewed");
    assert_eq!(second.lease().expires, late);
    drop((first, second));
    let third = case.pool.admit(&shown(4), None, late).expect("the broker has said so");
    case.pool.hear_ended([(third.number(), late)].into_iter(), now());
    drop(third);
    let refused = case.pool.admit(&shown(5), None, late).unwrap_err();
    assert_eq!(refused.error(), Code::LeaseOver, "it is given back");
}

#[test]
fn the_next_server_knows_what_the_broker_has_said() {
    let case = Case::new();
    let folder = tempfile::tempdir().unwrap();
    let notes = || Some(Notes::in_folder(folder.path()));
    let pool = || Pool::new("gpu1".parse().unwrap(), Vec::new(), now());
    let first = pool();
    first.note_in(notes());
    first.hear_keys(vec![case.broker.public().clone()]);
    first.hear_ended([(LeaseNumber(8), Timestamp::MAX)].into_iter(), now());
    // It ends without a word.
    let next = pool();
    next.note_in(notes());
    let held = next.admit(&case.shown(1, None), None, now()).expect("it knows the key");
    assert_eq!(
        next.leases.take(&Lease { number: LeaseNumber(8), ..held.lease() }).err(),
        Some(Over::Ended(LeaseNumber(8)))
    );
    drop(held);
    next.forget();
    drop((first, next));
    let last = pool();
    last.note_in(notes());
    assert!(last.admit(&case.shown(2, None), None, now()).is_err(), "it ended well");
    drop(last);
    std::fs::remove_dir(&folder).expect("nothing is left");
}

#[test]
fn how_many_processes_a_lease_is_for() {
    let mut lease = lease(Vec::new());
    assert_eq!(most_sessions(&lease), MOST_SESSIONS);
    lease.may_share = MayShare::Nobody;
    assert_eq!(most_sessions(&lease), 1);
}
