//! How many objects of each kind a session may have: each costs the worker a thread, a descriptor,
//! a mapping, or memory of the driver's that no quota counts.
//!
//! The limits are far above what programs use; a session beyond one gets the error of a device
//! without memory. `docs/limits.md` has the same numbers, and a test compares.

use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_abi::CUresult;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The driver starts threads for each, and page-locked memory goes with it.
    Context,
    GreenContext,
    Stream,
    Event,
    Module,
    Function,
    /// Each has a thread.
    Link,
    Pool,
    Array,
    Mipmap,
    Texture,
    Surface,
    Reference,
    /// Device memory by address, whatever it came from.
    Allocation,
    /// Physical memory; exported, each has a descriptor.
    Physical,
    Reservation,
    /// Physical memory at an address.
    Mapping,
    /// Page-locked memory of the program that kernels use: mappings of this process.
    Mapped,
    Graph,
    Executable,
    /// Of graphs and executables together.
    Node,
    /// Memory and events of other processes that were opened.
    Opened,
    /// Calls that wait for the device. Each may have a page-locked buffer.
    Wait,
    /// Small boxes on their way to the device, each in such a buffer.
    Parcel,
    /// Ranks of communicators of NCCL.
    Communicator,
    /// Threads that make driver calls which may block.
    Helper,
    /// Files that the server shares; each has a descriptor.
    File,
}

impl Kind {
    /// All of them, each with the name that the page has for it.
    #[cfg(test)]
    const ALL: [(Kind, &str); 27] = [
        (Kind::Context, "contexts"),
        (Kind::GreenContext, "green contexts"),
        (Kind::Stream, "streams"),
        (Kind::Event, "events"),
        (Kind::Module, "modules"),
        (Kind::Function, "kernels looked up"),
        (Kind::Link, "links of the JIT linker"),
        (Kind::Pool, "memory pools"),
        (Kind::Array, "arrays"),
        (Kind::Mipmap, "mipmapped arrays"),
        (Kind::Texture, "texture objects"),
        (Kind::Surface, "surface objects"),
        (Kind::Reference, "texture and surface references"),
        (Kind::Allocation, "allocations"),
        (Kind::Physical, "pieces of physical memory"),
        (Kind::Reservation, "reserved ranges of addresses"),
        (Kind::Mapping, "mapped pieces of physical memory"),
        (Kind::Mapped, "ranges of page-locked memory that kernels use"),
        (Kind::Graph, "graphs"),
        (Kind::Executable, "executable graphs"),
        (Kind::Node, "nodes of graphs and executable graphs"),
        (Kind::Opened, "memory of other processes that is open"),
        (Kind::Wait, "calls that wait for the device"),
        (Kind::Parcel, "small boxes on their way to the device"),
        (Kind::Communicator, "communicators of NCCL"),
        (Kind::Helper, "threads for calls that may block"),
        (Kind::File, "files that the server shares"),
    ];

    /// The most of it.
    pub(crate) const fn most(self) -> usize {
        match self {
            Kind::Link => 32,
            Kind::Context => 64,
            Kind::Helper => 512,
            Kind::Communicator => 256,
            Kind::GreenContext | Kind::Pool | Kind::Wait => 1 << 10,
            Kind::Parcel => 1 << 11,
            Kind::Stream | Kind::Mapped | Kind::File => 1 << 14,
            Kind::Module
            | Kind::Array
            | Kind::Mipmap
            | Kind::Reference
            | Kind::Reservation
            | Kind::Graph
            | Kind::Executable
            | Kind::Opened => 1 << 16,
            Kind::Event | Kind::Texture | Kind::Surface | Kind::Physical => 1 << 18,
            Kind::Function | Kind::Mapping => 1 << 20,
            Kind::Allocation | Kind::Node => 1 << 22,
        }
    }

    /// Whether there may be one more where there are so many.
    pub(crate) const fn room(self, there: usize) -> Result<(), CUresult> {
        if there < self.most() { Ok(()) } else { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) }
    }
}

/// Nodes of all graphs and executables. This process serves one session.
static NODES: AtomicUsize = AtomicUsize::new(0);

/// Nodes that count while this lives.
#[derive(Debug)]
pub(crate) struct Nodes(usize);

impl Nodes {
    /// Counts that many more objects, if the limit allows.
    pub(crate) fn take(count: usize) -> Result<Nodes, CUresult> {
        let add = |there: usize| there.checked_add(count).filter(|sum| *sum <= Kind::Node.most());
        let added = NODES.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        added.map(|_| Nodes(count)).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        NODES.fetch_sub(self.0, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1,024` for 1024.
    fn grouped(number: usize) -> String {
        let digits = number.to_string();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    #[test]
    fn the_page_says_how_many() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md"))
                .unwrap();
        for (kind, name) in Kind::ALL {
            let row = format!("| {name} | {} |", grouped(kind.most()));
            assert!(page.contains(&row), "docs/limits.md lacks: {row}");
        }
    }

    #[test]
    fn nodes_count_until_they_are_gone() {
        let some = Nodes::take(1000).unwrap();
        assert!(Nodes::take(Kind::Node.most()).is_err() && Nodes::take(usize::MAX).is_err());
        drop(some);
        assert!(Nodes::take(Kind::Node.most() / 2).is_ok());
        assert!(Kind::Link.room(31).is_ok() && Kind::Link.room(32).is_err());
    }
}
