package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/dra/internal/handover"
)

// Folders has a folder for each claim that is prepared, best in memory: keys are in them.
type Folders struct{ Path string }

const (
	leaseFile = "lease"
	keyFile   = "key.pem"
	// secret is the mode of both: for the user as whom the containers run.
	secret = 0o400
)

func (f Folders) of(uid types.UID) (string, error) {
	if name := string(uid); name != "" && filepath.IsLocal(name) && filepath.Base(name) == name {
		return filepath.Join(f.Path, name), nil
	}
	return "", fmt.Errorf("%q is no UID of a claim", uid)
}

// Put makes a claim's folder.
func (f Folders) Put(uid types.UID, what *handover.Handover) (string, error) {
	folder, err := f.of(uid)
	if err != nil {
		return "", err
	}
	// Nobody on the node reaches what is in there; a container has its own folder mounted.
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	if err := write(folder, keyFile, what.Key, what.User); err != nil {
		return "", err
	}
	return folder, write(folder, leaseFile, what.Lease, what.User)
}

// Renew puts a renewed lease in the place of the one that is there.
func (f Folders) Renew(uid types.UID, what *handover.Handover) error {
	folder, err := f.of(uid)
	if err != nil {
		return err
	}
	if !exists(folder) {
		// Meanwhile it was removed.
		return nil
	}
	return write(folder, leaseFile, what.Lease, what.User)
}

// write replaces a file as a whole, so that nobody reads half of it.
func write(folder, name, content string, user *int64) error {
	file, err := os.CreateTemp(folder, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := file.Chmod(secret); err != nil {
		return err
	}
	if _, err := file.WriteString(content); err != nil {
		return err
	}
	if user != nil {
		// The last: who may only give files away can do nothing more with it.
		if err := file.Chown(int(*user), -1); err != nil {
			return err
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), filepath.Join(folder, name))
}

// Remove removes a claim's folder. It is no error if there is none.
func (f Folders) Remove(uid types.UID) error {
	folder, err := f.of(uid)
	if err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// All are the claims that have folders.
func (f Folders) All() ([]types.UID, error) {
	entries, err := os.ReadDir(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	found := make([]types.UID, 0, len(entries))
	for _, entry := range entries {
		found = append(found, types.UID(entry.Name()))
	}
	return found, err
}
