//! Virtual memory that is mapped without a wait: what the driver refuses comes with the first thing
//! that could use it.

use outboard_e2e::{RawClient, Server};
use outboard_wire::device_id::DeviceId;
use outboard_wire::messages::*;
use outboard_wire::{DevicePtr, ObjectId};

const GRANULE: u64 = 2 << 20;
/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_NOT_SUPPORTED`: NVIDIA's driver maps memory whole.
const NOT_SUPPORTED: u32 = 801;

fn set_access(client: &mut RawClient, address: DevicePtr, bytes: u64) -> Result<(), u32> {
    client.call(&VmmSetAccess { address, bytes, access: vec![(DeviceId::new(0), 3)] }, |_| ())
}

#[test]
fn a_mapping_that_the_driver_refuses_is_told_of_before_it_is_used() {
    let server = Server::start();
    let mut client = RawClient::connect(&server);
    client.open();
    let reserve = VmmReserve { bytes: 4 * GRANULE, align: 0, hint: DevicePtr(0) };
    let base = client.call(&reserve, |reply| reply.address).expect("addresses");
    let [small, other, large] = [(77, 1), (78, 1), (79, 2)].map(|(name, granules)| {
        let (memory, bytes) = (ObjectId(name), granules * GRANULE);
        let create = VmmCreate {
            memory,
            bytes,
            device: DeviceId::new(0),
            handle_types: 0,
            compression: 0,
            usage: 0,
        };
        client.call(&create, |_| ()).expect("memory");
        memory
    });
    // The second lies beyond the end of the memory.
    for (piece, offset, memory) in [(0, 0, small), (1, 2, large), (2, 0, other)] {
        let address = base.offset(piece * GRANULE);
        client.post(&VmmPlace { address, bytes: GRANULE, offset: offset * GRANULE, memory });
    }
    set_access(&mut client, base, GRANULE).expect("the first is there");
    for (piece, bytes) in [(1, 1), (0, 3), (1, 2)] {
        let outcome = set_access(&mut client, base.offset(piece * GRANULE), bytes * GRANULE);
        assert!(
            matches!(outcome, Err(INVALID_VALUE | NOT_SUPPORTED)),
            "{piece} {bytes}: {outcome:?}"
        );
    }
    // All three are taken away together, and then the addresses are free.
    client
        .call(&VmmUnmap { address: base, bytes: 3 * GRANULE }, |_| ())
        .expect("they are unmapped");
    client.post(&VmmPlace {
        address: base.offset(GRANULE),
        bytes: 2 * GRANULE,
        offset: 0,
        memory: large,
    });
    set_access(&mut client, base.offset(GRANULE), 2 * GRANULE)
        .expect("what is mapped there now can be used");
    assert!(client.failures.is_empty(), "nothing else is told");
}
