//! How graphs are encoded.

use super::{
    AllocateNode, BatchNode, ConditionalNode, CopyNode, Edge, FillNode, GraphEdit, HostNode,
    KernelNode, MemoryOperation, NodeParams, Place, Rows,
};
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::{choice, record};

record! {
    Edge { node, ports }
    CopyNode { ctx, dst, src, extent }
    FillNode { ctx, dst, pitch, value, element, width, height }
    HostNode { function, data }
    AllocateNode { device, bytes, access }
    BatchNode { ctx, operations, flags }
    MemoryOperation { kind, address, value, flags }
    ConditionalNode { ctx, handle, kind, bodies }
}

impl<A: Encode> Encode for Rows<A> {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.address);
        writer.put(&self.pitch);
        writer.put(&self.height);
    }
}

impl<'a, A: Decode<'a>> Decode<'a> for Rows<A> {
    fn decode(reader: &mut Reader<'a>) -> Result<Rows<A>, DecodeError> {
        Ok(Rows { address: reader.get()?, pitch: reader.get()?, height: reader.get()? })
    }
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
    12 = Captured { ctx, graph };
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
            GraphEdit::Add { dependencies, params, .. } => {
                32 + dependencies.len() * 11 + params.size()
            }
            GraphEdit::Set { params, .. } => 16 + params.size(),
            GraphEdit::Remove { .. } | GraphEdit::Connect { .. } | GraphEdit::Disconnect { .. } => {
                32
            }
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
