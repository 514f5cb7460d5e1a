//! Nodes of graphs, as they travel. A graph is built by the client; the worker is told of what has changed in it before it makes an executable.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A dependency of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The node at the other end.
    pub node: u64,
    /// `from_port`, `to_port` and `type` of `CUgraphEdgeData`; all 0 for a full dependency.
    pub ports: [u8; 3],
}

/// A step in the building of a graph.
#[derive(Debug, Clone, PartialEq)]
pub enum GraphEdit {
    /// A new node, behind others that exist.
    Add {
        /// Its name.
        node: u64,
        /// What it waits for.
        dependencies: Vec<Edge>,
        /// What it does.
        params: NodeParams,
    },
    /// A node does something else of the same kind from now on.
    Set {
        /// Its name.
        node: u64,
        /// What it does.
        params: NodeParams,
    },
    /// A node and its edges are gone.
    Remove {
        /// Its name.
        node: u64,
    },
    /// `to` waits for `from.node`.
    Connect {
        /// What comes first, and how.
        from: Edge,
        /// What waits.
        to: u64,
    },
    /// `to` waits for `from.node` no more.
    Disconnect {
        /// What came first, and how.
        from: Edge,
        /// What waited.
        to: u64,
    },
}

/// What a node does.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeParams {
    /// Nothing: a place in the order.
    Empty,
    /// Launches a kernel.
    Kernel(KernelNode),
    /// Copies a box of bytes.
    Copy(CopyNode),
    /// Fills rows.
    Fill(FillNode),
    /// Calls a function of the program.
    Host(HostNode),
    /// Runs another graph, as it is when the executable is made.
    Child {
        /// The graph's name.
        graph: u64,
        /// It is inside the node from now on, itself and not a copy: its nodes are the executable's.
        moved: bool,
    },
    /// Records an event.
    EventRecord {
        /// The event's name.
        event: u64,
    },
    /// Waits for an event.
    EventWait {
        /// The event's name.
        event: u64,
    },
    /// Allocates memory, whose address was fixed when the node was made.
    Allocate(AllocateNode),
    /// Frees memory of a node that allocates.
    Free {
        /// Its address.
        address: u64,
    },
    /// Waits for and writes words in memory.
    Batch(BatchNode),
    /// Runs its bodies as a value on the device says.
    Conditional(ConditionalNode),
}

/// A launch of a kernel.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelNode {
    /// The context that the kernel is of.
    pub ctx: u32,
    /// The kernel's name.
    pub function: u64,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared: u32,
    /// The parameter buffer.
    pub params: Vec<u8>,
    /// `CUlaunchAttributeID` and the bytes of its value.
    pub attributes: Vec<(u32, [u8; 64])>,
}

/// Where one side of a copy lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On a device.
    Device(Rows),
    /// In the program's memory. The address is the program's: nobody else may follow it.
    Host(Rows),
    /// In an array, by its name, from `[x in bytes, y, z]`, at a mipmap level.
    Array {
        /// The array's name.
        array: u64,
        /// Where in it.
        at: [u64; 3],
        /// The mipmap level.
        level: u32,
    },
}

/// A box of bytes in linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Its first byte.
    pub address: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Rows from one slice to the next.
    pub height: u64,
}

/// A copy of a box of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyNode {
    /// The context it runs in.
    pub ctx: u32,
    /// Where to.
    pub dst: Place,
    /// Where from.
    pub src: Place,
    /// Bytes of a row, rows of a slice, slices.
    pub extent: [u64; 3],
}

/// A fill of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillNode {
    /// The context it runs in.
    pub ctx: u32,
    /// Address of the first row.
    pub dst: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// The element's value, in its low bytes.
    pub value: u32,
    /// Bytes of an element.
    pub element: u8,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

/// A call of a function of the program, in the program's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostNode {
    /// The function.
    pub function: u64,
    /// Its argument.
    pub data: u64,
}

/// An allocation of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocateNode {
    /// The device, by its ordinal in the driver library.
    pub device: u32,
    /// Bytes.
    pub bytes: u64,
    /// Other devices that may use it, and how (`CUmemAccess_flags`).
    pub access: Vec<(u32, u32)>,
}

/// Words to wait for and to write, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchNode {
    /// The context it runs in.
    pub ctx: u32,
    /// What is done.
    pub operations: Vec<MemoryOperation>,
    /// Flags of the batch.
    pub flags: u32,
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryOperation {
    /// `CUstreamBatchMemOpType`: waits and writes of 32 and 64 bits, barriers, flushes.
    pub kind: u32,
    /// Where.
    pub address: u64,
    /// The value waited for or written.
    pub value: u64,
    /// Flags of the operation.
    pub flags: u32,
}

/// A node that runs graphs inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalNode {
    /// The context it runs in.
    pub ctx: u32,
    /// What kernels call the value by.
    pub handle: u64,
    /// `CUgraphConditionalNodeType`.
    pub kind: u32,
    /// The names of the graphs inside.
    pub bodies: Vec<u64>,
}

/// Encodes a structure field by field.
macro_rules! record {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Encode for $type {
            fn encode(&self, writer: &mut Writer) {
                $(writer.put(&self.$field);)*
            }
        }

        impl<'a> Decode<'a> for $type {
            fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok($type { $($field: reader.get()?),* })
            }
        }
    )*};
}

record! {
    Edge { node, ports }
    Rows { address, pitch, height }
    CopyNode { ctx, dst, src, extent }
    FillNode { ctx, dst, pitch, value, element, width, height }
    HostNode { function, data }
    AllocateNode { device, bytes, access }
    BatchNode { ctx, operations, flags }
    MemoryOperation { kind, address, value, flags }
    ConditionalNode { ctx, handle, kind, bodies }
}

impl Encode for KernelNode {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.ctx);
        writer.put(&self.function);
        writer.put(&self.grid);
        writer.put(&self.block);
        writer.put(&self.shared);
        writer.bytes(&self.params);
        writer.put(&self.attributes);
    }
}

impl<'a> Decode<'a> for KernelNode {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(KernelNode {
            ctx: reader.get()?,
            function: reader.get()?,
            grid: reader.get()?,
            block: reader.get()?,
            shared: reader.get()?,
            params: reader.bytes()?.to_vec(),
            attributes: reader.get()?,
        })
    }
}

/// Encodes an enumeration as a byte and the fields of the variant.
macro_rules! choice {
    ($type:ident, $what:literal { $($tag:literal = $variant:ident $(($inner:ident))? $({ $($field:ident),* })?;)* }) => {
        impl Encode for $type {
            fn encode(&self, writer: &mut Writer) {
                match self {
                    $($type::$variant $(($inner))? $({ $($field),* })? => {
                        writer.u8($tag);
                        $(writer.put($inner);)?
                        $($(writer.put($field);)*)?
                    })*
                }
            }
        }

        impl<'a> Decode<'a> for $type {
            fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok(match reader.u8()? {
                    $($tag => {
                        $(let $inner = reader.get()?;)?
                        $($(let $field = reader.get()?;)*)?
                        $type::$variant $(($inner))? $({ $($field),* })?
                    })*
                    value => return Err(DecodeError::Invalid { what: $what, value: value.into() }),
                })
            }
        }
    };
}

choice! { Place, "place" {
    0 = Device(rows);
    1 = Host(rows);
    2 = Array { array, at, level };
}}

choice! { NodeParams, "graph node" {
    0 = Empty;
    1 = Kernel(node);
    2 = Copy(node);
    3 = Fill(node);
    4 = Host(node);
    5 = Child { graph, moved };
    6 = EventRecord { event };
    7 = EventWait { event };
    8 = Allocate(node);
    9 = Free { address };
    10 = Batch(node);
    11 = Conditional(node);
}}

choice! { GraphEdit, "graph edit" {
    0 = Add { node, dependencies, params };
    1 = Set { node, params };
    2 = Remove { node };
    3 = Connect { from, to };
    4 = Disconnect { from, to };
}}

impl GraphEdit {
    /// About how many bytes it takes, from above.
    pub fn size(&self) -> usize {
        match self {
            GraphEdit::Add { dependencies, params, .. } => 32 + dependencies.len() * 11 + params.size(),
            GraphEdit::Set { params, .. } => 16 + params.size(),
            GraphEdit::Remove { .. } | GraphEdit::Connect { .. } | GraphEdit::Disconnect { .. } => 32,
        }
    }
}

impl NodeParams {
    fn size(&self) -> usize {
        match self {
            NodeParams::Kernel(node) => 64 + node.params.len() + node.attributes.len() * 68,
            NodeParams::Batch(node) => 16 + node.operations.len() * 24,
            NodeParams::Allocate(node) => 32 + node.access.len() * 8,
            NodeParams::Conditional(node) => 32 + node.bodies.len() * 8,
            _ => 128,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ctx: 1,
            function: 2,
            grid: [3, 4, 5],
            block: [6, 7, 8],
            shared: 9,
            params: vec![1, 2, 3],
            attributes: vec![(4, [5; 64])],
        };
        let rows = Rows { address: 4096, pitch: 64, height: 8 };
        let copy = CopyNode {
            ctx: 1,
            dst: Place::Array { array: 7, at: [1, 2, 3], level: 4 },
            src: Place::Host(rows),
            extent: [4, 5, 6],
        };
        let all = [
            NodeParams::Empty,
            NodeParams::Kernel(kernel),
            NodeParams::Copy(copy),
            NodeParams::Fill(FillNode { ctx: 1, dst: 2, pitch: 3, value: 4, element: 1, width: 5, height: 6 }),
            NodeParams::Host(HostNode { function: 1, data: 2 }),
            NodeParams::Child { graph: 1, moved: true },
            NodeParams::EventRecord { event: 1 },
            NodeParams::EventWait { event: 1 },
            NodeParams::Allocate(AllocateNode { device: 0, bytes: 4096, access: vec![(1, 3)] }),
            NodeParams::Free { address: 1 },
            NodeParams::Batch(BatchNode {
                ctx: 1,
                operations: vec![MemoryOperation { kind: 1, address: 2, value: 3, flags: 4 }],
                flags: 0,
            }),
            NodeParams::Conditional(ConditionalNode { ctx: 1, handle: 2, kind: 1, bodies: vec![3] }),
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
}
