//! What a server believes of a lease, and what not.

use jiff::{SignedDuration, Timestamp};
use outboard_pool::lease::{Denied, Lease, NotSigned, PublicKeys, SigningKey, sign, verify};
use outboard_pool::words::{Granted, LeaseNumber, MayShare, ServerName, Share, Thumbprint, Use};
use proptest::prelude::*;
use std::sync::LazyLock;

static KEY: LazyLock<SigningKey> = LazyLock::new(new_key);

fn new_key() -> SigningKey {
    SigningKey::generate().expect("there is randomness")
}

fn keys(of: &[&SigningKey]) -> PublicKeys {
    of.iter().map(|key| key.public().clone()).collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("it is a time")
}

fn server(name: &str) -> ServerName {
    name.parse().expect("a name")
}

fn thumbprint(digit: char) -> Thumbprint {
    digit.to_string().repeat(64).parse().expect("a thumbprint")
}

/// Good from second 0 to second 300, on `gpu1` and `gpu2`.
fn lease() -> Lease {
    let granted = |name: &str, usage| Granted {
        server: server(name),
        device: "GPU-8a1f".parse().expect("a name"),
        memory_bytes: 20 << 30,
        usage,
    };
    let half = Use::Shared(Share::try_from(50).expect("a share"));
    Lease {
        number: LeaseNumber(17),
        owner: "ada".parse().expect("a name"),
        group: "physics".parse().expect("a name"),
        devices: vec![granted("gpu1", Use::Exclusive), granted("gpu2", half)],
        priority: 3,
        not_before: at(0),
        expires: at(300),
        renewable_until: at(86_400),
        client_key: thumbprint('a'),
        may_share: MayShare::Keys(vec![thumbprint('b')]),
    }
}

fn seen(token: &str, second: i64) -> Result<Lease, Denied> {
    verify(token, &keys(&[&KEY]), &server("gpu1"), at(second))
}

#[test]
fn a_server_reads_what_the_broker_wrote() {
    let token = sign(&lease(), &KEY).expect("it is signed");
    assert!(token.starts_with("v4.public."), "{token}");
    for name in ["gpu1", "gpu2"] {
        let read = verify(&token, &keys(&[&KEY]), &server(name), at(10)).expect("it is good");
        assert_eq!(read, lease());
        assert_eq!(read.on(&server(name)).count(), 1);
    }
}

#[test]
fn clocks_may_be_thirty_seconds_apart() {
    let token = sign(&lease(), &KEY).expect("it is signed");
    for second in [-30, -29, 0, 299, 300, 329, 330] {
        assert!(seen(&token, second).is_ok(), "{second}");
    }
    for second in [331, 100_000] {
        let error = seen(&token, second).expect_err("it is over");
        assert!(matches!(error, Denied::Expired { .. }), "{error}");
        assert!(error.to_string().contains("has expired at"), "{error}");
    }
    for second in [-31, -100_000] {
        let error = seen(&token, second).expect_err("it has not begun");
        assert!(matches!(error, Denied::NotYet { .. }), "{error}");
        assert!(error.to_string().contains("not yet valid"), "{error}");
    }
}

#[test]
fn times_at_the_ends_of_time_are_only_times() {
    let ever = Lease { not_before: Timestamp::MIN, expires: Timestamp::MAX, ..lease() };
    let token = sign(&ever, &KEY).expect("it is signed");
    for now in [Timestamp::MIN, at(0), Timestamp::MAX] {
        assert_eq!(verify(&token, &keys(&[&KEY]), &server("gpu1"), now), Ok(ever.clone()));
    }
}

#[test]
fn a_lease_of_other_servers_is_refused() {
    let token = sign(&lease(), &KEY).expect("it is signed");
    let error = verify(&token, &keys(&[&KEY]), &server("gpu3"), at(0)).expect_err("not for it");
    assert_eq!(
        error.to_string(),
        "lease 17 is for another server: it has no device of gpu3, but of gpu1, gpu2"
    );
    let nothing = sign(&Lease { devices: vec![], ..lease() }, &KEY).expect("it is signed");
    assert!(matches!(seen(&nothing, 0), Err(Denied::OtherServer { .. })));
}

#[test]
fn every_bit_counts() {
    let token = sign(&lease(), &KEY).expect("it is signed");
    let keys = keys(&[&KEY]);
    let mut tried = 0;
    for (at_byte, bit) in (0..token.len()).flat_map(|byte| (0..8).map(move |bit| (byte, bit))) {
        let mut bytes = token.clone().into_bytes();
        bytes[at_byte] ^= 1 << bit;
        // What is no text any more cannot even be asked about.
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        let result = verify(&changed, &keys, &server("gpu1"), at(0));
        assert!(result.is_err(), "bit {bit} of byte {at_byte} may change");
        tried += 1;
    }
    assert_eq!(tried, token.len() * 7);
    for end in 0..token.len() {
        assert!(verify(&token[..end], &keys, &server("gpu1"), at(0)).is_err(), "cut at {end}");
    }
}

#[test]
fn keys_change_one_after_the_other() {
    let (old, new) = (new_key(), new_key());
    let (of_old, of_new) = (sign(&lease(), &old), sign(&lease(), &new));
    let (of_old, of_new) = (of_old.expect("it is signed"), of_new.expect("it is signed"));
    let good = |token: &str, keys: &PublicKeys| verify(token, keys, &server("gpu1"), at(0));
    let mut believed = keys(&[&old]);
    assert_eq!(good(&of_new, &believed), Err(Denied::UnknownKey));
    believed.add(new.public().clone());
    assert_eq!((good(&of_old, &believed), good(&of_new, &believed)), (Ok(lease()), Ok(lease())));
    assert!(believed.remove(&old.public().id()));
    assert_eq!(good(&of_old, &believed), Err(Denied::UnknownKey));
    assert_eq!(good(&of_new, &believed), Ok(lease()));
}

/// The footer says which key to take; it cannot make a server take another signature for its.
#[test]
fn a_key_cannot_pass_for_another() {
    let stranger = new_key();
    let foreign = sign(&lease(), &stranger).expect("it is signed");
    let own = sign(&lease(), &KEY).expect("it is signed");
    let body = foreign.rsplit_once('.').expect("there is a footer").0;
    let footer = own.rsplit_once('.').expect("there is a footer").1;
    assert_eq!(seen(&format!("{body}.{footer}"), 0), Err(Denied::Damaged));
}

/// The key may sign other statements, and a statement may have more to say.
#[test]
fn only_a_whole_lease_is_one() {
    use pasetors::keys::AsymmetricSecretKey;
    use pasetors::version4::{PublicToken, V4};
    let secret = AsymmetricSecretKey::<V4>::try_from(&*KEY.to_secret_text()).expect("a key");
    let footer = format!(r#"{{"kid":"{}"}}"#, KEY.public().id());
    let signed = |claims: &str, purpose: Option<&[u8]>| {
        let footer = Some(footer.as_bytes());
        PublicToken::sign(&secret, claims.as_bytes(), footer, purpose).expect("it is signed")
    };
    let claims = serde_json::to_string(&lease()).expect("it has a form");
    let purpose: Option<&[u8]> = Some(b"outboard lease 1");
    assert_eq!(seen(&signed(&claims, purpose), 0), Ok(lease()));
    assert_eq!(seen(&signed(&claims, None), 0), Err(Denied::Damaged));
    assert_eq!(seen(&signed(&claims, Some(b"outboard lease 2")), 0), Err(Denied::Damaged));
    let restricted = claims.replacen('{', r#"{"only_on_sundays":true,"#, 1);
    assert_eq!(seen(&signed(&restricted, purpose), 0), Err(Denied::OtherForm));
    let without = claims.replacen(r#""priority":3,"#, "", 1);
    assert_ne!(without, claims);
    assert_eq!(seen(&signed(&without, purpose), 0), Err(Denied::OtherForm));
}

#[test]
fn a_lease_is_bound_to_keys() {
    let admitted = |may_share| {
        let lease = Lease { may_share, ..lease() };
        ['a', 'b', 'c'].map(|digit| lease.admits(&thumbprint(digit)))
    };
    assert_eq!(admitted(MayShare::Nobody), [true, false, false]);
    assert_eq!(admitted(MayShare::SameKey), [true, false, false]);
    assert_eq!(admitted(MayShare::Keys(vec![thumbprint('b')])), [true, true, false]);
}

#[test]
fn what_nobody_would_accept_is_not_signed() {
    let never = Lease { expires: at(0), ..lease() };
    assert_eq!(sign(&never, &KEY), Err(NotSigned::NeverGood(LeaseNumber(17))));
    let one = lease().devices[0].clone();
    let long = Lease { devices: vec![one; 10_000], ..lease() };
    assert_eq!(sign(&long, &KEY), Err(NotSigned::TooLong(LeaseNumber(17))));
}

proptest! {
    #[test]
    fn what_is_not_signed_is_refused(text in ".{0,200}") {
        for text in [text.clone(), format!("v4.public.{text}")] {
            prop_assert!(seen(&text, 0).is_err());
        }
    }

    #[test]
    fn what_strangers_sign_is_refused(seconds in -1000..1000_i64) {
        let token = sign(&lease(), &new_key()).expect("it is signed");
        prop_assert_eq!(seen(&token, seconds), Err(Denied::UnknownKey));
    }

    #[test]
    fn it_is_good_from_its_begin_to_its_end(
        begin in -1000..1000_i64,
        length in 1..1000_i64,
        now in -3000..3000_i64,
    ) {
        let lease = Lease { not_before: at(begin), expires: at(begin + length), ..lease() };
        let token = sign(&lease, &KEY).expect("it is signed");
        let good = (begin - 30..=begin + length + 30).contains(&now);
        prop_assert_eq!(seen(&token, now).is_ok(), good);
    }

    #[test]
    fn parts_of_tokens_put_together_are_refused(at_byte: prop::sample::Index, other in 1..100_u8) {
        let first = sign(&lease(), &KEY).expect("it is signed");
        let second = sign(&Lease { priority: 3 + other, ..lease() }, &KEY).expect("it is signed");
        let cut = at_byte.index(first.len().min(second.len()));
        let mixed = format!("{}{}", &first[..cut], &second[cut..]);
        prop_assume!(mixed != first && mixed != second);
        prop_assert!(seen(&mixed, 0).is_err());
    }
}

#[test]
fn tolerance_is_what_the_documentation_says() {
    assert_eq!(outboard_pool::lease::CLOCK_TOLERANCE, SignedDuration::from_secs(30));
}
