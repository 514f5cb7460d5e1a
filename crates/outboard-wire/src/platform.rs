//! What a server tells of itself and of its kernels: plain data that the client keeps and answers
//! from.

mod merged;

use std::fmt::Write as _;

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::device_id::DeviceId;
use crate::record;

pub use merged::merged;

/// The devices of a driver library, taken once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Platform {
    /// What `cuDriverGetVersion` gives, such as 13000.
    pub driver_version: u32,
    /// What the driver library calls itself, for people: a path or "software device".
    pub driver_name: String,
    /// The devices, in the driver's order.
    pub devices: Vec<Device>,
    /// Functions of CUDA 13.0 that the driver library does not export: it is older, or made for
    /// other machines.
    pub lacks: Vec<String>,
}

/// One device as `cuDeviceGet*` describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its name: its ordinal in the driver library that owns it and, in a client, its server.
    pub id: DeviceId,
    /// Name, as `cuDeviceGetName` gives it.
    pub name: String,
    /// `cuDeviceGetUuid`.
    pub uuid: [u8; 16],
    /// Bytes of device memory.
    pub total_memory: u64,
    /// `CUdevice_attribute` to value, ascending, for every attribute the driver answers.
    pub attributes: Vec<(u32, i32)>,
    /// Numerically greatest (least urgent) and least stream priority.
    pub stream_priorities: (i32, i32),
    /// The devices whose memory it can reach.
    pub peers: Vec<DeviceId>,
}

/// A kernel as `cuFuncGetAttribute` and `cuFuncGetParamInfo` describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Value of each `CUfunction_attribute`, by its number.
    pub attributes: Vec<i32>,
    /// Offset and size in bytes of each parameter in the parameter buffer.
    pub params: Vec<(u32, u32)>,
}

/// How the names of software devices begin.
pub const SOFTWARE_DEVICE: &str = "Outboard CPU";

impl Device {
    /// Whether it runs kernels on processors: only such as there is PTX of.
    pub fn is_software(&self) -> bool {
        self.name.starts_with(SOFTWARE_DEVICE)
    }

    /// The value of a `CUdevice_attribute`, if the driver has it.
    pub fn attribute(&self, attribute: u32) -> Option<i32> {
        let at = self.attributes.binary_search_by_key(&attribute, |(a, _)| *a).ok()?;
        Some(self.attributes[at].1)
    }
}

/// A UUID as `nvidia-smi -L` writes it and `CUDA_VISIBLE_DEVICES` takes it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (position, byte) in uuid.iter().enumerate() {
        if matches!(position, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl KernelInfo {
    /// The value of a `CUfunction_attribute`; 0 for one the driver does not know.
    pub fn attribute(&self, attribute: u32) -> i32 {
        self.attributes.get(attribute as usize).copied().unwrap_or(0)
    }

    /// Bytes of the parameter buffer.
    pub fn param_bytes(&self) -> usize {
        self.params
            .iter()
            .map(|(offset, size)| *offset as usize + *size as usize)
            .max()
            .unwrap_or(0)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
        writer.put(&self.1);
    }
}

impl<'a, A: Decode<'a>, B: Decode<'a>> Decode<'a> for (A, B) {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((reader.get()?, reader.get()?))
    }
}

impl<A: Encode, B: Encode, C: Encode> Encode for (A, B, C) {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
        writer.put(&self.1);
        writer.put(&self.2);
    }
}

impl<'a, A: Decode<'a>, B: Decode<'a>, C: Decode<'a>> Decode<'a> for (A, B, C) {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok((reader.get()?, reader.get()?, reader.get()?))
    }
}

impl<A: Encode, B: Encode, C: Encode, D: Encode> Encode for (A, B, C, D) {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.0);
        writer.put(&self.1);
        writer.put(&self.2);
        writer.put(&self.3);
    }
}

impl<'a, A: Decode<'a>, B: Decode<'a>, C: Decode<'a>, D: Decode<'a>> Decode<'a> for (A, B, C, D) {
    fn decode(reader: &mut Reader<'a>) -> Result<(A, B, C, D), DecodeError> {
        Ok((reader.get()?, reader.get()?, reader.get()?, reader.get()?))
    }
}

impl Encode for Platform {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.driver_version);
        writer.put(&self.driver_name);
        writer.put(&self.devices);
        writer.put(&self.lacks);
    }
}

impl<'a> Decode<'a> for Platform {
    /// Names of the driver and of devices are [`plain`](crate::plain).
    fn decode(reader: &mut Reader<'a>) -> Result<Platform, DecodeError> {
        let (driver_version, driver_name) = (reader.get()?, crate::plain(reader.get()?));
        let mut devices: Vec<Device> = reader.get()?;
        devices.iter_mut().for_each(|device| device.name = crate::plain(&device.name));
        Ok(Platform { driver_version, driver_name, devices, lacks: reader.get()? })
    }
}

record!(Device { id, name, uuid, total_memory, attributes, stream_priorities, peers });

/// Most bytes of parameters that any kernel of CUDA takes.
const MOST_PARAMETERS: u32 = 32_764;

impl Encode for KernelInfo {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.attributes);
        writer.put(&self.params);
    }
}

impl<'a> Decode<'a> for KernelInfo {
    fn decode(reader: &mut Reader<'a>) -> Result<KernelInfo, DecodeError> {
        let info = KernelInfo { attributes: reader.get()?, params: reader.get()? };
        // So many bytes are read from the program's memory at each launch.
        let ends = |(offset, size): &(u32, u32)| u64::from(*offset) + u64::from(*size);
        if let Some(end) = info.params.iter().map(ends).find(|end| *end > MOST_PARAMETERS.into()) {
            return Err(DecodeError::Invalid { what: "size of a kernel's parameters", value: end });
        }
        Ok(info)
    }
}
