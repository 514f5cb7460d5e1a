package keys

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The same as in outboard_auth::lease_key: a release that derives another key would lose leases.
func TestKeysAreThoseOfOutboard(t *testing.T) {
	root := Root{[]byte("a secret of 32 bytes or more....")}
	key, err := root.For("slurm.cluster.1234")
	if err != nil {
		t.Fatal(err)
	}
	const wanted = "ea2dc60bf22925426c587d31ce302c4164586faaf051dadbcbeac1aefd9c3ec9"
	if key.Thumbprint() != wanted {
		t.Errorf("the thumbprint is %s", key.Thumbprint())
	}
	other, err := root.For("slurm.cluster.1235")
	if err != nil || other.Thumbprint() == wanted {
		t.Errorf("another purpose has the same key, or none: %v", err)
	}
	text, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil || !key.private.Equal(private.(ed25519.PrivateKey)) {
		t.Errorf("the key in PEM is another one: %v", err)
	}
}

func TestASecretIs32BytesInDigits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	for text, isFine := range map[string]bool{
		strings.Repeat("0a", 32) + "\n": true,
		strings.Repeat("0a", 31):        false,
		strings.Repeat("zz", 32):        false,
		"":                              false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); (err == nil) != isFine {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Read(file + "-that-is-not-there"); err == nil {
		t.Error("a file that is not there was read")
	}
}
