# Writes OUTPUT, a source file that names the git revision of SOURCE; only when it has changed. Runs
# with every build. Without git or a repository the revision is "unknown".
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(revision unknown)
else()
  execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD ERROR_QUIET RESULT_VARIABLE changed)
  if(changed)
    string(APPEND revision "-changed")
  endif()
endif()
set(text "#include \"tools/revision.h\"\n\n\
const char* const pmstore::tools::kRevision = \"${revision}\";\n")
set(present)
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} present)
endif()
if(NOT present STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
