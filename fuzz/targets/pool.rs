//! What a pool reads of strangers: tokens, and in JSON servers, requests and what a broker signed.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use outboard_pool::lease::{Lease, PublicKeys, SigningKey, sign, verify};
use outboard_pool::placement::{Placement, Policy};
use outboard_pool::state::Pool;
use outboard_pool::words::{LeaseNumber, Request, Server};

static KEY: LazyLock<(SigningKey, PublicKeys)> = LazyLock::new(|| {
    let key = SigningKey::generate().expect("there is randomness");
    let keys = [key.public().clone()].into_iter().collect();
    (key, keys)
});

fuzz_target!(|text: &str| {
    let (key, keys) = &*KEY;
    let server = "gpu1".parse().expect("a name");
    let now = "2026-11-25T12:00:00Z".parse().expect("a time");
    assert!(verify(text, keys, &server, now).is_err(), "nobody signed it");

    if let Ok(lease) = serde_json::from_str::<Lease>(text)
        && let Ok(token) = sign(&lease, key)
        && let Ok(read) = verify(&token, keys, &server, now)
    {
        assert_eq!(read, lease, "what was signed is what is read");
    }

    // A line for each server, then the requests.
    let mut pool = Pool::default();
    for (number, line) in (0..).map(LeaseNumber).zip(text.lines()) {
        if let Ok(server) = serde_json::from_str::<Server>(line) {
            let _ = pool.register(server);
        }
        let Ok(request) = serde_json::from_str::<Request>(line) else { continue };
        for policy in Policy::ALL {
            match policy.place(&pool, &request) {
                Ok(granted) => {
                    let before = pool.clone();
                    let (owner, group) = (&request.owner, &request.group);
                    pool.grant(number, owner, group, granted).expect("what was placed is free");
                    assert!(pool.release(number), "it was granted");
                    assert!(pool == before, "what is given back was never taken");
                }
                Err(refusal) => assert!(!refusal.to_string().is_empty()),
            }
        }
    }
});
