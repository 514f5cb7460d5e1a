//! What the records of one direction are encrypted with.

use std::io;

use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, Error};

/// Bytes of a record's header, the last two of which are the length of the rest.
pub(super) const HEADER: usize = 5;
/// The most plaintext in a record.
pub(super) const RECORD: usize = 16 << 10;
/// The most bytes behind a record's header.
pub(super) const LONGEST: usize = RECORD + 256;
/// Bytes that prove that the others are the sender's.
pub(super) const TAG: usize = 16;
/// What a record takes beyond its plaintext: header, kind, tag.
pub(super) const OVERHEAD: usize = HEADER + 1 + TAG;

/// What a record is about: its *content type*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        [Kind::Alert, Kind::Handshake, Kind::Data].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// An error of rustls as an error of a stream.
pub(super) fn failure(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A peer that does not keep to TLS.
pub(super) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {what}"))
}

/// The connection's secrets, from which rustls makes each next key.
pub(super) enum Secrets {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Secrets {
    /// After how many records a key has to be another one.
    pub(super) fn records_of_a_key(&self) -> u64 {
        let suite = match self {
            Secrets::Client(connection) => connection.negotiated_cipher_suite(),
            Secrets::Server(connection) => connection.negotiated_cipher_suite(),
        };
        suite.tls13().map_or(0, |suite| suite.common.confidentiality_limit)
    }

    /// The next key to send with.
    pub(super) fn next_to_send(&mut self) -> io::Result<Key> {
        let next = match self {
            Secrets::Client(connection) => connection.update_tx_secret(),
            Secrets::Server(connection) => connection.update_tx_secret(),
        };
        Key::new(next.map_err(failure)?)
    }

    /// The next key to receive with.
    pub(super) fn next_to_receive(&mut self) -> io::Result<Key> {
        let next = match self {
            Secrets::Client(connection) => connection.update_rx_secret(),
            Secrets::Server(connection) => connection.update_rx_secret(),
        };
        Key::new(next.map_err(failure)?)
    }
}

/// A key of one direction, and the number of its next record.
pub(super) struct Key {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    number: u64,
}

impl Key {
    pub(super) fn new((number, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Key> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(wrong("the algorithm that was agreed on is not known")),
        };
        let unfit = || wrong("a key does not fit its algorithm");
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unfit())?;
        let iv = iv.as_ref().try_into().map_err(|_| unfit())?;
        Ok(Key { key: LessSafeKey::new(key), iv, number })
    }

    /// How many records it has encrypted or decrypted.
    pub(super) fn used(&self) -> u64 {
        self.number
    }

    /// What makes the next record unlike all others of this key.
    fn nonce(&mut self) -> io::Result<Nonce> {
        let mut bytes = self.iv;
        let number = self.number.to_be_bytes();
        bytes[NONCE_LEN - number.len()..].iter_mut().zip(number).for_each(|(byte, of)| *byte ^= of);
        self.number = self.number.checked_add(1).ok_or_else(|| wrong("a key is used up"))?;
        Ok(Nonce::assume_unique_for_key(bytes))
    }

    /// Encrypts a record in its place: its plaintext lies behind the room for the header, and room
    /// for the kind and the tag behind it.
    pub(super) fn seal(&mut self, kind: Kind, record: &mut [u8]) -> io::Result<()> {
        let (header, body) = record.split_at_mut(HEADER);
        let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
        header.copy_from_slice(&[Kind::Data as u8, 3, 3, high, low]);
        let (plain, tag) = body.split_at_mut(body.len() - TAG);
        if let Some(last) = plain.last_mut() {
            *last = kind as u8;
        }
        let nonce = self.nonce()?;
        let made = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), plain)
            .map_err(|_| wrong("a record cannot be encrypted"))?;
        tag.copy_from_slice(made.as_ref());
        Ok(())
    }

    /// Decrypts the whole record that begins `at` a place in `room` and ends with it; its kind, and
    /// how many bytes of plaintext there are, which then lie at the beginning of `room`.
    pub(super) fn open(&mut self, room: &mut [u8], at: usize) -> io::Result<(Kind, usize)> {
        let body = at + HEADER;
        let mut header = [0; HEADER];
        header.copy_from_slice(&room[at..body]);
        if header[0] != Kind::Data as u8 {
            return Err(wrong("a record of the peer is not encrypted"));
        }
        let nonce = self.nonce()?;
        let plain = self
            .key
            .open_within(nonce, Aad::from(header), room, body..)
            .map_err(|_| failure(Error::DecryptError))?;
        // Zeros behind the kind hide the length.
        let at = plain.iter().rposition(|byte| *byte != 0);
        let at = at.filter(|at| *at <= RECORD).ok_or_else(|| wrong("a record without a kind"))?;
        let kind = Kind::of(plain[at]).ok_or_else(|| wrong("a record of a kind unheard of"))?;
        Ok((kind, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of zeros.
    fn key() -> Key {
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[0; 16]).unwrap());
        Key { key, iv: [3; NONCE_LEN], number: 7 }
    }

    /// A record whose plaintext and kind are these bytes, which need not keep to the rules.
    fn record(inner: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(inner.len() + TAG).unwrap().to_be_bytes();
        let header = [23, 3, 3, high, low];
        let mut body = inner.to_vec();
        let mut key = key();
        let nonce = key.nonce().unwrap();
        key.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut body).unwrap();
        [&header[..], &body].concat()
    }

    #[test]
    fn what_is_sealed_is_opened() {
        let mut sealed = vec![b'a'; 9 + OVERHEAD];
        let (mut from, mut to) = (key(), key());
        for kind in [Kind::Data, Kind::Alert, Kind::Handshake] {
            sealed[HEADER..HEADER + 9].copy_from_slice(b"nine byte");
            from.seal(kind, &mut sealed).unwrap();
            assert_eq!(to.open(&mut sealed.clone(), 0).unwrap(), (kind, 9));
            assert!(to.open(&mut sealed.clone(), 0).is_err(), "each record once");
            to.number -= 1;
        }
        assert_eq!((from.used(), to.used()), (10, 10));
    }

    #[test]
    fn zeros_behind_the_kind_do_not_count() {
        let mut padded = record(&[&[1, 2, 0, 23][..], &[0; 99]].concat());
        assert_eq!(key().open(&mut padded, 0).unwrap(), (Kind::Data, 3));
        assert_eq!(padded[..3], [1, 2, 0]);
    }

    #[test]
    fn a_record_that_is_none_is_refused() {
        let too_much = [vec![1; RECORD + 1], vec![23]].concat();
        for inner in [&[][..], &[0; 30], &[1, 2, 24], &too_much] {
            assert!(key().open(&mut record(inner), 0).is_err(), "{} bytes", inner.len());
        }
        for length in 0..TAG {
            let mut short = vec![23, 3, 3, 0, length as u8];
            short.extend(vec![0; length]);
            assert!(key().open(&mut short, 0).is_err());
        }
        let mut last = key();
        last.number = u64::MAX;
        assert!(last.seal(Kind::Data, &mut [0; OVERHEAD]).is_err(), "no number comes twice");
    }
}
