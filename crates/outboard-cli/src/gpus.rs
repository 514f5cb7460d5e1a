//! Whether this machine has a GPU of NVIDIA's, whatever their driver says.

use std::fs;
use std::path::Path;

/// NVIDIA, as PCI numbers makers.
const NVIDIA: &str = "0x10de";
/// The class of display controllers, as its first digits.
const DISPLAY: &str = "0x03";

/// The first GPU below this root, in words; `None` if there is none to be seen.
pub(crate) fn first(root: &Path) -> Option<String> {
    device_node(&root.join("dev")).or_else(|| on_the_bus(&root.join("sys/bus/pci/devices")))
}

/// A device that NVIDIA's kernel module has made.
fn device_node(folder: &Path) -> Option<String> {
    let names = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let is_gpu = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    names.filter(is_gpu).min().map(|name| format!("/dev/{name}"))
}

fn on_the_bus(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let says = |path: &Path, what: &str, begin: &str| {
        fs::read_to_string(path.join(what)).is_ok_and(|text| text.trim().starts_with(begin))
    };
    let gpus = entries.filter(|entry| {
        says(&entry.path(), "vendor", NVIDIA) && says(&entry.path(), "class", DISPLAY)
    });
    let name = gpus.filter_map(|entry| entry.file_name().into_string().ok()).min()?;
    Some(format!("PCI {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_seen_by_its_device_or_on_the_bus() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(first(root), None);
        for other in ["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia"] {
            put(other, "");
        }
        let bus = |slot: &str, vendor: &str, class: &str| {
            put(&format!("sys/bus/pci/devices/{slot}/vendor"), vendor);
            put(&format!("sys/bus/pci/devices/{slot}/class"), class);
        };
        bus("0000:00:02.0", "0x8086\n", "0x030000\n");
        // The sound of a graphics card.
        bus("0000:01:00.1", "0x10de\n", "0x040300\n");
        assert_eq!(first(root), None);
        bus("0000:01:00.0", "0x10de\n", "0x030200\n");
        assert_eq!(first(root).as_deref(), Some("PCI 0000:01:00.0"));
        put("dev/nvidia0", "");
        assert_eq!(first(root).as_deref(), Some("/dev/nvidia0"));
    }
}
