use super::*;
use crate::codec::{Encode, Reader, Writer};
use crate::device_id::DeviceId;

fn round_trip(edit: &GraphEdit) {
    let mut writer = Writer::new();
    edit.encode(&mut writer);
    let bytes = writer.into_vec();
    assert!(bytes.len() <= edit.size() + 8, "{edit:?} takes {} bytes", bytes.len());
    let mut reader = Reader::new(&bytes);
    assert_eq!(&reader.get::<GraphEdit>().unwrap(), edit);
    reader.finish().unwrap();
    for len in 0..bytes.len() {
        assert!(Reader::new(&bytes[..len]).get::<GraphEdit>().is_err());
    }
}

#[test]
fn edits_survive() {
    let kernel = KernelNode {
        ctx: ContextId(1),
        function: ObjectId(2),
        grid: [3, 4, 5],
        block: [6, 7, 8],
        shared: 9,
        params: vec![1, 2, 3],
        attributes: vec![(4, [5; 64])],
    };
    let rows = Rows { address: HostPtr(4096), pitch: 64, height: 8 };
    let copy = CopyNode {
        ctx: ContextId(1),
        dst: Place::Array { array: ObjectId(7), at: [1, 2, 3], level: 4 },
        src: Place::Host(rows),
        extent: [4, 5, 6],
    };
    let all = [
        NodeParams::Empty,
        NodeParams::Kernel(kernel),
        NodeParams::Copy(copy),
        NodeParams::Fill(FillNode {
            ctx: ContextId(1),
            dst: DevicePtr(2),
            pitch: 3,
            value: 4,
            element: 1,
            width: 5,
            height: 6,
        }),
        NodeParams::Host(HostNode { function: 1, data: 2 }),
        NodeParams::Child { graph: ObjectId(1), moved: true },
        NodeParams::Captured { ctx: ContextId(1), graph: ObjectId(2) },
        NodeParams::EventRecord { event: ObjectId(1) },
        NodeParams::EventWait { event: ObjectId(1) },
        NodeParams::Allocate(AllocateNode {
            device: DeviceId::new(0),
            bytes: 4096,
            access: vec![(DeviceId::new(1), 3)],
        }),
        NodeParams::Free { address: DevicePtr(1) },
        NodeParams::Batch(BatchNode {
            ctx: ContextId(1),
            operations: vec![MemoryOperation {
                kind: 1,
                address: DevicePtr(2),
                value: 3,
                flags: 4,
            }],
            flags: 0,
        }),
        NodeParams::Conditional(ConditionalNode {
            ctx: ContextId(1),
            handle: 2,
            kind: 1,
            bodies: vec![ObjectId(3)],
        }),
    ];
    let edge = Edge { node: 9, ports: [1, 0, 1] };
    for params in all {
        round_trip(&GraphEdit::Add { node: 1, dependencies: vec![edge], params: params.clone() });
        round_trip(&GraphEdit::Set { node: 1, params });
    }
    round_trip(&GraphEdit::Remove { node: 1 });
    round_trip(&GraphEdit::Connect { from: edge, to: 2 });
    round_trip(&GraphEdit::Disconnect { from: edge, to: 2 });
}
