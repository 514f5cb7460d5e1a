//! How the messages are written.

use outboard_nvml::Gauges;
use outboard_wire::handshake::RefusalCode;
use outboard_wire::handshake::resume::Terms;
use outboard_wire::{Decode, DecodeError, Encode, Reader, Writer};

use super::{ContextMemory, Gauge, Grace, Secure, Start, ToSupervisor, ToWorker, Warm, Watch};

impl Encode for Secure {
    fn encode(&self, writer: &mut Writer) {
        writer.bytes(&self.certificate);
        writer.bytes(&self.key);
    }
}

impl<'a> Decode<'a> for Secure {
    fn decode(reader: &mut Reader<'a>) -> Result<Secure, DecodeError> {
        Ok(Secure { certificate: reader.bytes()?.to_vec(), key: reader.bytes()?.to_vec() })
    }
}

impl Encode for ToWorker {
    fn encode(&self, writer: &mut Writer) {
        match self {
            ToWorker::Start(start) => {
                writer.u8(0);
                writer.u64(start.session);
                writer.u128(start.key);
                writer.u32(start.lanes);
                writer.put(&start.probe);
                writer.put(&start.devices);
                writer.str(&start.client);
                writer.put(&start.process);
                writer.put(&start.identity);
                writer.put(&start.secure);
                writer.put(&start.lends);
                writer.put(&start.only_questions);
                writer.u32(start.supervisor);
                writer.put(&start.local);
                writer.put(&start.platform);
                writer.put(&start.grace);
            }
            ToWorker::GoOn { secure, point } => {
                writer.u8(20);
                writer.put(secure);
                writer.put(point);
            }
            ToWorker::Lane { secure, point: None } => {
                writer.u8(1);
                writer.put(secure);
            }
            ToWorker::Lane { secure, point: Some(point) } => {
                writer.u8(21);
                writer.put(secure);
                writer.put(point);
            }
            ToWorker::Board => writer.u8(2),
            ToWorker::Memory => writer.u8(4),
            ToWorker::Suspend => writer.u8(50),
            ToWorker::Resume => writer.u8(51),
            ToWorker::Meter => writer.u8(40),
            ToWorker::Trace { on, root } => {
                writer.u8(42);
                writer.put(on);
                writer.u64(*root);
            }
            ToWorker::End { sentence } => {
                writer.u8(41);
                writer.str(sentence);
            }
            ToWorker::Answer { request, payload } => {
                writer.u8(3);
                writer.u64(*request);
                writer.put(payload);
            }
            ToWorker::Warm(warm) => {
                writer.u8(5);
                writer.put(&warm.contexts);
                writer.put(&warm.measure);
                writer.u32(warm.supervisor);
            }
            ToWorker::Watch(Watch { supervisor, platform }) => {
                writer.u8(6);
                writer.u32(*supervisor);
                writer.put(platform);
            }
            ToWorker::Look => writer.u8(7),
            ToWorker::Home { outlive } => {
                writer.u8(32);
                writer.put(outlive);
            }
            ToWorker::Keep { tag } => {
                writer.u8(33);
                writer.u8(*tag);
            }
            ToWorker::Unknown(number) => writer.u8(*number),
        }
    }
}

impl<'a> Decode<'a> for ToWorker {
    fn decode(reader: &mut Reader<'a>) -> Result<ToWorker, DecodeError> {
        match reader.u8()? {
            0 => Ok(ToWorker::Start(Box::new(Start {
                session: reader.u64()?,
                key: reader.u128()?,
                lanes: reader.u32()?,
                probe: reader.get()?,
                devices: reader.get()?,
                client: reader.get()?,
                process: reader.get()?,
                identity: reader.get()?,
                secure: reader.get()?,
                lends: reader.get()?,
                only_questions: reader.get()?,
                supervisor: reader.u32()?,
                local: reader.get()?,
                platform: reader.get()?,
                grace: reader.get()?,
            }))),
            1 => Ok(ToWorker::Lane { secure: reader.get()?, point: None }),
            21 => Ok(ToWorker::Lane { secure: reader.get()?, point: Some(reader.get()?) }),
            20 => Ok(ToWorker::GoOn { secure: reader.get()?, point: reader.get()? }),
            2 => Ok(ToWorker::Board),
            4 => Ok(ToWorker::Memory),
            50 => Ok(ToWorker::Suspend),
            51 => Ok(ToWorker::Resume),
            40 => Ok(ToWorker::Meter),
            42 => Ok(ToWorker::Trace { on: reader.get()?, root: reader.u64()? }),
            41 => Ok(ToWorker::End { sentence: reader.get()? }),
            3 => Ok(ToWorker::Answer { request: reader.u64()?, payload: reader.get()? }),
            5 => {
                Ok(ToWorker::Warm(Warm { contexts: reader.get()?, measure: reader.get()?, supervisor: reader.u32()? }))
            }
            6 => Ok(ToWorker::Watch(Watch { supervisor: reader.u32()?, platform: reader.get()? })),
            7 => Ok(ToWorker::Look),
            32 => Ok(ToWorker::Home { outlive: reader.get()? }),
            33 => Ok(ToWorker::Keep { tag: reader.u8()? }),
            number => {
                reader.take_rest();
                Ok(ToWorker::Unknown(number))
            }
        }
    }
}

impl Encode for Gauge {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.ordinal);
        writer.str(&self.name);
        writer.str(&self.uuid);
        writer.u64(self.memory);
        writer.put(&self.now.memory_free);
        writer.put(&self.now.memory_used);
        writer.put(&self.now.utilisation);
        writer.put(&self.now.temperature);
        writer.put(&self.now.milliwatts);
    }
}

impl<'a> Decode<'a> for Gauge {
    fn decode(reader: &mut Reader<'a>) -> Result<Gauge, DecodeError> {
        Ok(Gauge {
            ordinal: reader.u32()?,
            name: reader.get()?,
            uuid: reader.get()?,
            memory: reader.u64()?,
            now: Gauges {
                memory_free: reader.get()?,
                memory_used: reader.get()?,
                utilisation: reader.get()?,
                temperature: reader.get()?,
                milliwatts: reader.get()?,
            },
        })
    }
}

impl Encode for ContextMemory {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.ordinal);
        writer.u64(self.free);
        writer.u64(self.total);
        writer.put(&self.size);
    }
}

impl<'a> Decode<'a> for ContextMemory {
    fn decode(reader: &mut Reader<'a>) -> Result<ContextMemory, DecodeError> {
        Ok(ContextMemory { ordinal: reader.u32()?, free: reader.u64()?, total: reader.u64()?, size: reader.get()? })
    }
}

impl Encode for Grace {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&Terms { grace: self.silent });
        writer.put(&Terms { grace: self.closed });
    }
}

impl<'a> Decode<'a> for Grace {
    fn decode(reader: &mut Reader<'a>) -> Result<Grace, DecodeError> {
        let (silent, closed): (Terms, Terms) = (reader.get()?, reader.get()?);
        Ok(Grace { silent: silent.grace, closed: closed.grace })
    }
}

impl Encode for ToSupervisor {
    fn encode(&self, writer: &mut Writer) {
        match self {
            ToSupervisor::Welcomed => writer.u8(0),
            ToSupervisor::Failed { code, sentence } => {
                writer.u8(1);
                writer.u16(code.number());
                writer.str(sentence);
            }
            ToSupervisor::Share { request, token, kind, payload } => {
                writer.u8(2);
                writer.u64(*request);
                writer.u128(*token);
                writer.u8(*kind);
                writer.put(payload);
            }
            ToSupervisor::Spans { spans, dropped, last } => {
                writer.u8(40);
                writer.put(spans);
                writer.u64(*dropped);
                writer.put(last);
            }
            ToSupervisor::Unshare { token } => {
                writer.u8(3);
                writer.u128(*token);
            }
            ToSupervisor::Find { request, token, kind } => {
                writer.u8(4);
                writer.u64(*request);
                writer.u128(*token);
                writer.u8(*kind);
            }
            ToSupervisor::Quiet { quiet } => {
                writer.u8(50);
                writer.put(quiet);
            }
            ToSupervisor::Wake => writer.u8(51),
            ToSupervisor::Room { request, device, bytes, failed } => {
                writer.u8(52);
                writer.u64(*request);
                writer.u32(*device);
                writer.u64(*bytes);
                writer.put(failed);
            }
            ToSupervisor::Holds { device, bytes } => {
                writer.u8(53);
                writer.u32(*device);
                writer.u64(*bytes);
            }
            ToSupervisor::Ready { snapshot, contexts } => {
                writer.u8(5);
                writer.bytes(snapshot);
                writer.put(contexts);
            }
            ToSupervisor::Gauges(gauges) => {
                writer.u8(6);
                writer.put(gauges);
            }
            ToSupervisor::Orphan => writer.u8(32),
            ToSupervisor::Kept { tag } => {
                writer.u8(33);
                writer.u8(*tag);
            }
            ToSupervisor::Told => writer.u8(34),
            ToSupervisor::Unknown(number) => writer.u8(*number),
        }
    }
}

impl<'a> Decode<'a> for ToSupervisor {
    fn decode(reader: &mut Reader<'a>) -> Result<ToSupervisor, DecodeError> {
        match reader.u8()? {
            0 => Ok(ToSupervisor::Welcomed),
            1 => Ok(ToSupervisor::Failed { code: RefusalCode::from_number(reader.u16()?), sentence: reader.get()? }),
            2 => Ok(ToSupervisor::Share {
                request: reader.u64()?,
                token: reader.u128()?,
                kind: reader.u8()?,
                payload: reader.get()?,
            }),
            40 => Ok(ToSupervisor::Spans { spans: reader.get()?, dropped: reader.u64()?, last: reader.get()? }),
            3 => Ok(ToSupervisor::Unshare { token: reader.u128()? }),
            4 => Ok(ToSupervisor::Find { request: reader.u64()?, token: reader.u128()?, kind: reader.u8()? }),
            50 => Ok(ToSupervisor::Quiet { quiet: reader.get()? }),
            51 => Ok(ToSupervisor::Wake),
            52 => Ok(ToSupervisor::Room {
                request: reader.u64()?,
                device: reader.u32()?,
                bytes: reader.u64()?,
                failed: reader.get()?,
            }),
            53 => Ok(ToSupervisor::Holds { device: reader.u32()?, bytes: reader.u64()? }),
            5 => Ok(ToSupervisor::Ready { snapshot: reader.bytes()?.to_vec(), contexts: reader.get()? }),
            6 => Ok(ToSupervisor::Gauges(reader.get()?)),
            32 => Ok(ToSupervisor::Orphan),
            33 => Ok(ToSupervisor::Kept { tag: reader.u8()? }),
            34 => Ok(ToSupervisor::Told),
            number => {
                reader.take_rest();
                Ok(ToSupervisor::Unknown(number))
            }
        }
    }
}
