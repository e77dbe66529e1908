package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// programEnvironment holds what a test adds to the environment of the program.
var programEnvironment []string

// runProgram runs one verb and gives the test what a function of the package would give: output on stdout, and the error.
func runProgram(verb string, args *skel.CmdArgs) error {
	var stdout bytes.Buffer
	command := exec.Command(os.Getenv("PROGRAM_UNDER_TEST"))
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "CNI_") {
			command.Env = append(command.Env, variable)
		}
	}
	searched := args.Path
	if searched == "" {
		searched = os.Getenv("PATH")
	}
	command.Env = append(command.Env, programEnvironment...)
	command.Env = append(command.Env,
		"CNI_COMMAND="+verb,
		"CNI_CONTAINERID="+args.ContainerID,
		"CNI_NETNS="+args.Netns,
		"CNI_IFNAME="+args.IfName,
		"CNI_ARGS="+args.Args,
		"CNI_PATH="+searched,
		// Some tests put the container into the namespace of the host.
		"CNI_NETNS_OVERRIDE=1",
	)
	command.Stdin = bytes.NewReader(args.StdinData)
	command.Stdout = &stdout
	command.Stderr = os.Stderr
	status := command.Run()
	if status == nil {
		_, err := os.Stdout.Write(stdout.Bytes())
		return err
	}
	answer := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), answer) != nil || answer.Msg == "" {
		return fmt.Errorf("%w: %s", status, stdout.String())
	}
	if answer.Code == types.ErrInternal && answer.Details == "" {
		// An error without a code of its own, which some tests compare.
		return errors.New(answer.Msg)
	}
	return answer
}
