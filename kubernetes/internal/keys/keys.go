// Package keys derives the keys to which leases are bound, as `outboard_auth::lease_key` does.
package keys

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// salt sets these keys apart from all else that is derived from the same secret.
const salt = "outboard lease key 1"

// Root is the secret from which all keys come.
type Root struct{ secret []byte }

// Read reads a root secret of 32 bytes, as 64 hexadecimal digits.
func Read(file string) (*Root, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the secret for keys cannot be read: %w", err)
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != sha256.Size {
		return nil, fmt.Errorf(
			"%s is to have 64 hexadecimal digits; `openssl rand -hex 32` makes them", file)
	}
	return &Root{secret}, nil
}

// Key is the key for one lease.
type Key struct{ private ed25519.PrivateKey }

// For gives the key for a purpose: always the same one.
func (r *Root) For(purpose string) (*Key, error) {
	seed, err := hkdf.Key(sha256.New, r.secret, []byte(salt), purpose, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return &Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// Thumbprint is how a lease names the key.
func (k *Key) Thumbprint() string {
	sum := sha256.Sum256(k.private.Public().(ed25519.PublicKey))
	return hex.EncodeToString(sum[:])
}

// PEM is the key as the client library reads it.
func (k *Key) PEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
