//! Nodes of graphs, as they travel. A graph is built by the client; the worker is told of what has
//! changed in it before it makes an executable.

mod encoding;

use crate::device_id::DeviceId;
use crate::names::{ContextId, DevicePtr, HostPtr, ObjectId};

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

impl NodeParams {
    /// The context that the node works in, if it is of one.
    pub fn context(&self) -> Option<ContextId> {
        match self {
            NodeParams::Kernel(node) => Some(node.ctx),
            NodeParams::Copy(node) => Some(node.ctx),
            NodeParams::Fill(node) => Some(node.ctx),
            NodeParams::Batch(node) => Some(node.ctx),
            NodeParams::Conditional(node) => Some(node.ctx),
            NodeParams::Captured { ctx, .. } => Some(*ctx),
            _ => None,
        }
    }
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
        graph: ObjectId,
        /// It is inside the node from now on, itself and not a copy: its nodes are the
        /// executable's.
        moved: bool,
    },
    /// Records an event.
    EventRecord {
        /// The event's name.
        event: ObjectId,
    },
    /// Waits for an event.
    EventWait {
        /// The event's name.
        event: ObjectId,
    },
    /// Allocates memory, whose address was fixed when the node was made.
    Allocate(AllocateNode),
    /// Frees memory of a node that allocates.
    Free {
        /// Its address.
        address: DevicePtr,
    },
    /// Waits for and writes words in memory.
    Batch(BatchNode),
    /// Runs its bodies as a value on the device says.
    Conditional(ConditionalNode),
    /// Runs a graph that the worker has captured: what is in it, only the worker knows.
    Captured {
        /// The context it runs in.
        ctx: ContextId,
        /// The graph's name.
        graph: ObjectId,
    },
}

/// A launch of a kernel.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelNode {
    /// The context that the kernel is of.
    pub ctx: ContextId,
    /// The kernel's name.
    pub function: ObjectId,
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
    Device(Rows<DevicePtr>),
    /// In the program's memory. The address is the program's, which nobody else may follow; to a
    /// worker goes a number of the client's in its place.
    Host(Rows<HostPtr>),
    /// In an array, by its name, from `[x in bytes, y, z]`, at a mipmap level.
    Array {
        /// The array's name.
        array: ObjectId,
        /// Where in it.
        at: [u64; 3],
        /// The mipmap level.
        level: u32,
    },
}

/// A box of bytes in linear memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows<A> {
    /// Its first byte.
    pub address: A,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Rows from one slice to the next.
    pub height: u64,
}

/// A copy of a box of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyNode {
    /// The context it runs in.
    pub ctx: ContextId,
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
    pub ctx: ContextId,
    /// Address of the first row.
    pub dst: DevicePtr,
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
    /// The device.
    pub device: DeviceId,
    /// Bytes.
    pub bytes: u64,
    /// Other devices that may use it, and how (`CUmemAccess_flags`).
    pub access: Vec<(DeviceId, u32)>,
}

/// Words to wait for and to write, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchNode {
    /// The context it runs in.
    pub ctx: ContextId,
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
    pub address: DevicePtr,
    /// The value waited for or written.
    pub value: u64,
    /// Flags of the operation.
    pub flags: u32,
}

/// A node that runs graphs inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalNode {
    /// The context it runs in.
    pub ctx: ContextId,
    /// What kernels call the value by.
    pub handle: u64,
    /// `CUgraphConditionalNodeType`.
    pub kind: u32,
    /// The names of the graphs inside.
    pub bodies: Vec<ObjectId>,
}

#[cfg(test)]
mod tests;
