//! What kinds of commands there are, for those who count them.

use std::sync::LazyLock;

use outboard_wire::messages;

/// Names of the classes, as [`Class`] numbers them.
pub const CLASSES: [&str; 8] =
    ["launch", "copy", "memory", "module", "wait", "graph", "query", "other"];

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A kernel, or a graph of them.
    Launch,
    /// Copies and fills.
    Copy,
    /// Memory allocated, freed, mapped, shared.
    Memory,
    /// Code loaded and looked into.
    Module,
    /// Waits for the device, and questions whether it is done.
    Wait,
    /// Graphs built and changed.
    Graph,
    /// What NVML and attributes are asked.
    Query,
    /// Contexts, streams, events and the rest.
    Other,
}

/// By the beginning of a message's name; the first that fits counts.
const BY_NAME: &[(&str, Class)] = &[
    ("launch", Class::Launch),
    ("graph_launch", Class::Launch),
    ("copy_", Class::Copy),
    ("fill", Class::Copy),
    ("memory_info", Class::Query),
    ("memory_", Class::Memory),
    ("managed_", Class::Memory),
    ("mapped_", Class::Memory),
    ("vmm_", Class::Memory),
    ("pool_", Class::Memory),
    ("share_", Class::Memory),
    ("unshare", Class::Memory),
    ("open_", Class::Memory),
    ("close_memory", Class::Memory),
    ("import_", Class::Memory),
    ("export_", Class::Memory),
    ("array_", Class::Memory),
    ("mipmap_", Class::Memory),
    ("module_", Class::Module),
    ("image_", Class::Module),
    ("link_", Class::Module),
    ("function_", Class::Module),
    ("context_synchronize", Class::Wait),
    ("stream_synchronize", Class::Wait),
    ("stream_query", Class::Wait),
    ("event_synchronize", Class::Wait),
    ("wait_", Class::Wait),
    ("event_query", Class::Wait),
    ("graph_", Class::Graph),
    ("nvml_", Class::Query),
    ("occupancy", Class::Query),
    ("device_", Class::Query),
    ("peer_attribute", Class::Query),
    ("peer_atomics", Class::Query),
];

/// Of every message, by its number.
static BY_NUMBER: LazyLock<Vec<Class>> = LazyLock::new(|| (0..512).map(look_up).collect());

fn look_up(op: u16) -> Class {
    let name = messages::name(op).unwrap_or_default();
    let found = BY_NAME.iter().find(|(beginning, _)| name.starts_with(beginning));
    found.map_or(Class::Other, |(_, class)| *class)
}

impl Class {
    /// The classes of all messages, by number. What is beyond them is of class [`Class::Other`].
    pub fn table() -> &'static [Class] {
        &BY_NUMBER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_a_class_and_every_class_a_message() {
        let of = |wanted: &str| {
            let op = (0..512).find(|op| messages::name(*op) == Some(wanted)).expect("a message");
            CLASSES[Class::table()[op as usize] as usize]
        };
        for (name, class) in [
            ("launch", "launch"),
            ("graph_launch", "launch"),
            ("graph_create", "graph"),
            ("copy_in", "copy"),
            ("memory_info", "query"),
            ("memory_alloc", "memory"),
            ("module_load_named", "module"),
            ("stream_synchronize", "wait"),
            ("stream_create", "other"),
            ("nvml_query", "query"),
        ] {
            assert_eq!(of(name), class, "{name}");
        }
        for (beginning, _) in BY_NAME {
            let known = (0..512).filter_map(messages::name).any(|name| name.starts_with(beginning));
            assert!(known, "no message begins with {beginning}");
        }
        assert!((512..u16::MAX).all(|op| messages::name(op).is_none()), "the table is too short");
    }
}
