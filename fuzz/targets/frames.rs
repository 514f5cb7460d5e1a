//! Bytes from the other side of a session, in pieces of any length, to both halves.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, bytes)) = data.split_first() else { return };
    let piece = usize::from(piece) + 1;

    let mut server = outboard_session::server::Incoming::new();
    'server: for chunk in bytes.chunks(piece) {
        server.buffer().push(chunk);
        loop {
            match server.next_command() {
                Ok(Some(command)) => {
                    assert!(command.payload.len() <= bytes.len());
                    match outboard_wire::messages::round_trip(command.op, command.payload) {
                        Ok(Some(again)) => assert_eq!(again, command.payload),
                        Ok(None) | Err(_) => break 'server,
                    }
                }
                Ok(None) => break,
                Err(_) => break 'server,
            }
        }
        // What is kept for later is never more than what came, but for the room to receive the next
        // piece.
        assert!(server.buffer().capacity() <= 2 * bytes.len() + (1 << 20));
    }

    if let Some(head) = bytes.first_chunk()
        && let Ok(header) = outboard_wire::lane::LaneHeader::decode(head)
    {
        assert!(header.len as usize <= *outboard_wire::limits::CHUNK_BYTES.end());
    }

    let mut client = outboard_session::client::Incoming::default();
    'client: for chunk in bytes.chunks(piece) {
        client.buffer().push(chunk);
        loop {
            match client.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => break 'client,
            }
        }
        assert!(client.buffer().capacity() <= 2 * bytes.len() + (1 << 20));
    }
});
