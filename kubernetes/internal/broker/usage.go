package broker

import (
	"encoding/json"
	"errors"
)

// Whole is all of a device's multiprocessors, in percent.
const Whole = 100

// Usage is which part of a device's multiprocessors somebody has.
type Usage struct {
	// Exclusive says that nobody else uses the device; Percent is then [Whole].
	Exclusive bool
	Percent   uint8
}

const exclusive = "exclusive"

// MarshalJSON writes it as the broker reads it.
func (u Usage) MarshalJSON() ([]byte, error) {
	if u.Exclusive {
		return json.Marshal(exclusive)
	}
	return json.Marshal(map[string]uint8{"shared": u.Percent})
}

// UnmarshalJSON reads it as the broker writes it.
func (u *Usage) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil && word == exclusive {
		*u = Usage{Exclusive: true, Percent: Whole}
		return nil
	}
	var shared struct {
		Shared *uint8 `json:"shared"`
	}
	if err := json.Unmarshal(text, &shared); err != nil {
		return err
	}
	if shared.Shared == nil {
		return errors.New("a use of a device is neither exclusive nor shared")
	}
	*u = Usage{Percent: *shared.Shared}
	return nil
}
