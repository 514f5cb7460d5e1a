package clustertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image is what `cargo xtask image` has laid out of an image: its files, and what it says.
type image struct {
	root       string
	User       string
	Env        []string
	Entrypoint []string
	Cmd        []string
}

// images is the folder of all of them. Where there is none, the test is skipped: it also writes to
// the folders of a node, which are this machine's unless who sets the variable has others there.
func images(t testing.TB) string {
	t.Helper()
	path := os.Getenv("OUTBOARD_IMAGES")
	if path == "" {
		t.Skip("OUTBOARD_IMAGES names no folder of images: `cargo xtask kubernetes` makes them")
	}
	return path
}

// imageOf is the image of a name such as outboard-dra:0.1.0.
func imageOf(t testing.TB, name string) *image {
	t.Helper()
	name, _, _ = strings.Cut(name, ":")
	folder := filepath.Join(images(t), name)
	text, err := os.ReadFile(folder + ".json")
	if err != nil {
		t.Fatal(err)
	}
	found := &image{root: folder}
	if err := json.Unmarshal(text, found); err != nil {
		t.Fatal(err)
	}
	return found
}
