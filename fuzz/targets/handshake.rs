//! The first bytes of a connection, as a server and as a client reads them, and the platform in a
//! welcome.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::lease::{LEASE, ShownLease};
use outboard_wire::handshake::{Answer, Extensions, HELLO_LIMIT, Hello, Preamble, VERSION};
use outboard_wire::platform::{KernelInfo, Platform};

fuzz_target!(|data: &[u8]| {
    let _ = decode_all::<Platform>(data);
    let _ = decode_all::<KernelInfo>(data);
    let Some((head, body)) = data.split_first_chunk::<{ Preamble::SIZE }>() else { return };
    if let Ok(preamble) = Preamble::decode(head, HELLO_LIMIT)
        && let Ok(hello) = Hello::decode(&preamble, body, VERSION)
    {
        // What was understood can be said again.
        let again = hello.encode();
        let (head, body) =
            again.split_first_chunk::<{ Preamble::SIZE }>().expect("a preamble comes first");
        let preamble = Preamble::decode(head, HELLO_LIMIT).expect("our own preamble is right");
        assert_eq!(Hello::decode(&preamble, body, VERSION).as_ref(), Ok(&hello));
        if let Ok(Some(shown)) = hello.more.get::<ShownLease>(LEASE) {
            let mut more = Extensions::default();
            more.set(LEASE, &shown);
            assert_eq!(more.get(LEASE).as_ref(), Ok(&Some(shown.clone())));
            assert_ne!(shown.statement(None), shown.statement(Some(&shown.key)));
        }
    }
    let mut rest = data;
    let read = |room: &mut [u8]| {
        let (begun, behind) = rest.split_at_checked(room.len()).ok_or(None)?;
        room.copy_from_slice(begun);
        rest = behind;
        Ok(())
    };
    let _ = Answer::read(read, Some);
});
